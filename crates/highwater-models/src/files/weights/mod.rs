//! Weights as `.safetensors` files, streamed: a tensor at a time through a fixed window.

mod finite;
mod folder;
mod header;
mod layout;
mod read;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};

use highwater_memory::FilesError;
use highwater_memory::saved::SavedError;
use safetensors::Dtype;

pub use finite::NotFinite;
pub use folder::{INDEX, INDEX_BYTES_MAX, SINGLE, WeightsFolder};
pub(crate) use header::checked_bytes;
pub use header::{HEADER_BYTES_MAX, Header, TENSORS_MAX, TensorInfo};
pub use layout::Layout;
pub(crate) use layout::{HEAD, are_equal};
pub use read::WeightsReader;
pub use write::{TensorSpec, WeightsSink, WeightsWriter};

/// Bytes of a file that are in memory at once, read or written.
pub const WINDOW_BYTES: usize = 1 << 20;

/// What went wrong with a file of weights.
#[derive(Debug)]
pub struct WeightsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: WeightsProblem,
}

impl fmt::Display for WeightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            // These name the path themselves.
            WeightsProblem::Files(error) => error.fmt(f),
            WeightsProblem::Saved(error) => error.fmt(f),
            problem => write!(f, "{}: {problem}", self.path.display()),
        }
    }
}

impl std::error::Error for WeightsError {}

/// What can be wrong with a file of weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsProblem {
    /// Reading or writing failed.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Writing a saved state failed.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// Shorter than the eight bytes that every file starts with.
    #[error("the file has only {bytes} bytes; not a safetensors file")]
    TooShort {
        /// Its length.
        bytes: u64,
    },
    /// A header longer than the file or than [`HEADER_BYTES_MAX`].
    #[error(
        "a header of {bytes} bytes; at most {max} are possible here, so it is damaged or no safetensors file"
    )]
    HeaderLength {
        /// The length it states.
        bytes: u64,
        /// The most that it could be.
        max: u64,
    },
    /// A header that is not the JSON object it should be.
    #[error("damaged header: {problem}")]
    Json {
        /// What the parser says, with line and column.
        problem: String,
    },
    /// An index of files that is longer than [`INDEX_BYTES_MAX`].
    #[error("an index of {bytes} bytes; at most {INDEX_BYTES_MAX} are read")]
    IndexLength {
        /// Its length.
        bytes: u64,
    },
    /// An index of files that is not the JSON object it should be.
    #[error("damaged index: {problem}")]
    Index {
        /// What the parser says, with line and column.
        problem: String,
    },
    /// An index that names a file elsewhere.
    #[error(
        "tensor `{tensor}`: the index puts it in `{file}`, which is not the name of a file in its folder"
    )]
    IndexPath {
        /// The tensor.
        tensor: String,
        /// What is said to be its file.
        file: String,
    },
    /// Extents whose product is beyond any memory.
    #[error("tensor `{tensor}`: shape {shape:?} is too large")]
    Overflow {
        /// The tensor.
        tensor: String,
        /// Its extents.
        shape: Vec<usize>,
    },
    /// Dtype and shape need another number of bytes than the offsets give.
    #[error(
        "tensor `{tensor}`: {dtype:?} of shape {shape:?} takes {expected} bytes, its offsets {start}..{end} say otherwise"
    )]
    Size {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
        /// Its extents.
        shape: Vec<usize>,
        /// Bytes that these take.
        expected: u64,
        /// Where it starts.
        start: u64,
        /// Where it ends.
        end: u64,
    },
    /// Tensors that overlap or leave a hole.
    #[error("tensor `{tensor}` starts at byte {start}, where the one before it ends at {expected}")]
    NotContiguous {
        /// The tensor.
        tensor: String,
        /// Where it starts.
        start: u64,
        /// Where it should.
        expected: u64,
    },
    /// More or fewer bytes behind the header than the tensors take.
    #[error("truncated or damaged: {found} bytes of tensors, and the header declares {expected}")]
    DataLength {
        /// What the header says.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// No such tensor.
    #[error("there is no tensor `{tensor}`")]
    Missing {
        /// The tensor.
        tensor: String,
    },
    /// Several that are not there.
    #[error("there is no tensor `{tensor}`{}", missing_too(*others))]
    MissingSome {
        /// The first of them.
        tensor: String,
        /// How many more.
        others: usize,
    },
    /// One that two files have.
    #[error("tensor `{tensor}` is also in {file}: it is not clear which one to use")]
    Twice {
        /// The tensor.
        tensor: String,
        /// The other file.
        file: String,
    },
    /// A model of more layers than its weights have.
    #[error("config.json describes {}, and the weights have {stored}", layers(*described))]
    TooFewLayers {
        /// By the configuration.
        described: usize,
        /// In the files.
        stored: usize,
    },
    /// A model of fewer layers than its weights have, which would be cut short.
    #[error(
        "config.json describes {}, and the weights have {stored}: {tensors} tensors, such as `{tensor}`, would be \
        ignored", layers(*described)
    )]
    TooManyLayers {
        /// By the configuration.
        described: usize,
        /// In the files.
        stored: usize,
        /// How many tensors belong to the others.
        tensors: usize,
        /// The first of these.
        tensor: String,
    },
    /// Parameters of the model's layers that the configuration does not have: the model would be another one.
    #[error(
        "tensor `{tensor}`{} would not be read: config.json describes layers without",
        and_others(*others)
    )]
    Undescribed {
        /// The first of them.
        tensor: String,
        /// How many more.
        others: usize,
    },
    /// A head that is not the token embedding, of a model that says so.
    #[error(
        "lm_head.weight is not the token embedding, though config.json has tie_word_embeddings"
    )]
    Untied,
    /// A tensor of another shape than asked for.
    #[error("tensor `{tensor}` has shape {found:?}; expected {expected:?}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// What was asked for.
        expected: Vec<usize>,
        /// What it has.
        found: Vec<usize>,
    },
    /// An element type that cannot become what was asked for.
    #[error("tensor `{tensor}` is {dtype:?}; expected F32, BF16, F16 or F64")]
    NotFloat {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
    },
    /// A buffer of another length than the tensor. Only a caller's mistake leads here.
    #[error("tensor `{tensor}` takes {expected} bytes; the buffer has {found}")]
    Buffer {
        /// The tensor.
        tensor: String,
        /// Bytes that the tensor takes.
        expected: u64,
        /// Bytes of the buffer.
        found: u64,
    },
    /// Tensors written in another order, or more or less of one, than the header says. Only a
    /// caller's mistake leads here.
    #[error("tensor `{tensor}` was written where the header has {expected}")]
    Order {
        /// What was written.
        tensor: String,
        /// What belonged there.
        expected: String,
    },
}

/// Of several tensors that are missing, one of which is named.
fn missing_too(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => ", and 1 other is missing too".to_owned(),
        others => format!(", and {others} others are missing too"),
    }
}

/// So many layers.
fn layers(count: usize) -> String {
    format!("{count} layer{}", if count == 1 { "" } else { "s" })
}

/// Of several tensors, one of which is named.
fn and_others(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        others => format!(" and {others} others"),
    }
}

impl WeightsProblem {
    fn at(self, path: &Path) -> WeightsError {
        WeightsError {
            path: path.to_owned(),
            problem: self,
        }
    }
}

/// Bytes of one element, for the types of whole bytes that are read and written here.
pub(crate) fn float_bytes(dtype: Dtype) -> Option<usize> {
    match dtype {
        Dtype::F64 => Some(8),
        Dtype::F32 => Some(4),
        Dtype::BF16 | Dtype::F16 => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
