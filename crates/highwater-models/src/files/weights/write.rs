//! Writing weights, a tensor at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use highwater_memory::saved::SaveFile;
use highwater_memory::{FileWrite, Files};
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use super::header::checked_bytes;
use super::{WINDOW_BYTES, WeightsError, WeightsProblem, float_bytes};

/// A tensor that a file will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// Element type in the file.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
}

/// Where weights are written to.
pub trait WeightsSink {
    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// When writing fails.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), WeightsProblem>;

    /// Ends the file and makes it durable.
    ///
    /// # Errors
    /// When writing fails.
    fn close(self) -> Result<(), WeightsProblem>;
}

impl WeightsSink for Box<dyn FileWrite> {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), WeightsProblem> {
        Ok((**self).write_all(bytes)?)
    }

    fn close(mut self) -> Result<(), WeightsProblem> {
        Ok(self.sync_all()?)
    }
}

impl WeightsSink for SaveFile<'_, '_> {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), WeightsProblem> {
        Ok(SaveFile::write_all(self, bytes)?)
    }

    fn close(self) -> Result<(), WeightsProblem> {
        Ok(SaveFile::close(self)?)
    }
}

/// A file of weights that is being written: the header at once, then the tensors in its order, each
/// in as many pieces as the caller likes. Holds one window of [`WINDOW_BYTES`].
#[derive(Debug)]
pub struct WeightsWriter<W = Box<dyn FileWrite>> {
    path: PathBuf,
    file: W,
    tensors: std::vec::IntoIter<TensorSpec>,
    /// The tensor that is being written, and how many of its bytes are still to come.
    current: Option<(TensorSpec, u64)>,
    window: Vec<u8>,
}

impl WeightsWriter {
    /// Creates a file that will hold `tensors`, in that order.
    ///
    /// # Errors
    /// As [`WeightsWriter::begin`], and when the file cannot be created.
    pub fn create(
        files: &dyn Files,
        path: &Path,
        tensors: Vec<TensorSpec>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Self, WeightsError> {
        let file = files.create(path);
        let file = file.map_err(|error| WeightsProblem::from(error).at(path))?;
        Self::begin(file, path, tensors, metadata)
    }
}

impl<W: WeightsSink> WeightsWriter<W> {
    /// Begins a file that is open already, such as one of a saved state. Errors will name it `path`.
    ///
    /// # Errors
    /// [`WeightsError`] for a shape beyond any memory, a name that is there twice, and a write that
    /// fails.
    pub fn begin(
        mut file: W,
        path: &Path,
        tensors: Vec<TensorSpec>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Self, WeightsError> {
        header(&tensors, metadata)
            .and_then(|header| {
                file.write_all(&(header.len() as u64).to_le_bytes())?;
                file.write_all(&header)
            })
            .map_err(|problem| problem.at(path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            tensors: tensors.into_iter(),
            current: None,
            window: Vec::with_capacity(WINDOW_BYTES),
        })
    }

    /// Writes the next elements of the tensor `name`, rounded to nearest where the file's type is
    /// narrower.
    ///
    /// # Errors
    /// [`WeightsError`] when it is not that tensor's turn, or there is more than it holds, or it
    /// is none of floats; and for a write that fails.
    pub fn write_f32(&mut self, name: &str, elements: &[f32]) -> Result<(), WeightsError> {
        self.write_f32_inner(name, elements)
            .map_err(|problem| problem.at(&self.path))
    }

    fn write_f32_inner(&mut self, name: &str, elements: &[f32]) -> Result<(), WeightsProblem> {
        let dtype = self.turn(name)?;
        let width = float_bytes(dtype).ok_or_else(|| WeightsProblem::NotFloat {
            tensor: name.to_owned(),
            dtype,
        })?;
        self.count(name, elements.len() as u64 * width as u64)?;
        for piece in elements.chunks(WINDOW_BYTES / width) {
            self.window.clear();
            narrow(dtype, piece, &mut self.window);
            self.file.write_all(&self.window)?;
        }
        Ok(())
    }

    /// Writes the next bytes of the tensor `name`, which are in the file's type already.
    ///
    /// # Errors
    /// [`WeightsError`] when it is not that tensor's turn, or there is more than it holds; and for
    /// a write that fails.
    pub fn write_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<(), WeightsError> {
        self.turn(name)
            .and_then(|_| self.count(name, bytes.len() as u64))
            .and_then(|()| self.file.write_all(bytes))
            .map_err(|problem| problem.at(&self.path))
    }

    /// Ends the file and makes it durable.
    ///
    /// # Errors
    /// [`WeightsError`] when tensors are still to come, and for a write that fails.
    pub fn finish(mut self) -> Result<(), WeightsError> {
        self.advance();
        let end = match &self.current {
            Some((tensor, left)) => Err(WeightsProblem::Order {
                tensor: "the end".to_owned(),
                expected: format!("{left} more bytes of `{}`", tensor.name),
            }),
            None => self.file.close(),
        };
        end.map_err(|problem| problem.at(&self.path))
    }

    /// Moves on to the next tensor that has bytes to come.
    fn advance(&mut self) {
        while self.current.as_ref().is_none_or(|&(_, left)| left == 0) {
            self.current = self.tensors.next().map(|tensor| {
                let bytes = checked_bytes(tensor.dtype, &tensor.shape).unwrap_or(0);
                (tensor, bytes)
            });
            if self.current.is_none() {
                return;
            }
        }
    }

    /// The type of `name`, if it is that tensor's turn. A tensor without elements always has its.
    fn turn(&mut self, name: &str) -> Result<Dtype, WeightsProblem> {
        self.advance();
        match &self.current {
            Some((tensor, _)) if tensor.name == name => Ok(tensor.dtype),
            other => Err(WeightsProblem::Order {
                tensor: name.to_owned(),
                expected: match other {
                    Some((tensor, _)) => format!("`{}`", tensor.name),
                    None => "its end".to_owned(),
                },
            }),
        }
    }

    fn count(&mut self, name: &str, bytes: u64) -> Result<(), WeightsProblem> {
        let left = self.current.as_mut().map(|(_, left)| left);
        let before = left.as_deref().copied().unwrap_or(0);
        match (left, before.checked_sub(bytes)) {
            (Some(left), Some(after)) => {
                *left = after;
                Ok(())
            }
            _ => Err(WeightsProblem::Buffer {
                tensor: name.to_owned(),
                expected: before,
                found: bytes,
            }),
        }
    }
}

/// The header, padded so that the tensors start at a multiple of eight bytes.
fn header(
    tensors: &[TensorSpec],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, WeightsProblem> {
    let mut entries = Map::new();
    if !metadata.is_empty() {
        entries.insert("__metadata__".to_owned(), json!(metadata));
    }
    let mut start = 0_u64;
    for TensorSpec { name, dtype, shape } in tensors {
        let end = checked_bytes(*dtype, shape).and_then(|bytes| start.checked_add(bytes));
        let end = end.ok_or_else(|| WeightsProblem::Overflow {
            tensor: name.clone(),
            shape: shape.clone(),
        })?;
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]});
        if entries.insert(name.clone(), entry).is_some() {
            return Err(WeightsProblem::Order {
                tensor: name.clone(),
                expected: "another name: this one is there already".to_owned(),
            });
        }
        start = end;
    }
    let mut json = Value::from(entries).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    Ok(json)
}

/// Elements as little-endian `dtype`.
fn narrow(dtype: Dtype, elements: &[f32], out: &mut Vec<u8>) {
    let each = elements.iter();
    match dtype {
        Dtype::F64 => out.extend(each.flat_map(|&x| f64::from(x).to_le_bytes())),
        Dtype::BF16 => out.extend(each.flat_map(|&x| bf16::from_f32(x).to_le_bytes())),
        Dtype::F16 => out.extend(each.flat_map(|&x| f16::from_f32(x).to_le_bytes())),
        _ => out.extend(each.flat_map(|&x| x.to_le_bytes())),
    }
}
