//! Data: long sequences of tokens, read a window at a time, and batches of them.

mod batches;
mod folder;
mod options;
mod order;
mod packing;
mod progress;
mod rows;
mod source;
mod splits;
mod spool;
mod text;
mod token_file;
mod token_format;

use std::path::PathBuf;

use highwater_memory::FilesError;

use crate::TokenizerError;

pub use batches::{BatchShape, Batches};
pub use folder::{holds_tokens, is_token_file, is_token_set, parts_of};
pub use highwater_data::permute;
pub use options::DataOptions;
pub use order::{Cursor, Order};
pub use packing::{DOCUMENTS_MAX, Entry, PackedCounts, Packer};
pub use progress::Progress;
pub use rows::{IGNORED, PackedBatch, RowBatches, RowWriter, Rows};
pub use source::Tokens;
pub use splits::{Found, Parts, Reads, Split, split_of};
pub use token_format::TokenWidth;

/// What can go wrong with data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Reading or writing failed.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The text cannot be tokenised.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// There is nothing at the path.
    #[error("{}: there is no such file or folder", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// A file or folder without a token.
    #[error("{}: it is empty", path.display())]
    Empty {
        /// The path.
        path: PathBuf,
    },
    /// A folder whose files are all for other things than training, by their names.
    #[error("{}: {problem}", path.display())]
    NoTraining {
        /// The folder.
        path: PathBuf,
        /// Which files there are.
        problem: String,
    },
    /// A folder with more in it than text for training would need.
    #[error("{}: more than {max} {what}", path.display())]
    FolderTooLarge {
        /// The folder.
        path: PathBuf,
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// A file of tokens in a folder of text.
    #[error(
        "{}: tokens in a folder of text ({}); give the path of the file itself",
        path.display(),
        text.display()
    )]
    TokensAmongText {
        /// The file.
        path: PathBuf,
        /// A text beside it.
        text: PathBuf,
    },
    /// A `.npy` or `.bin` that is not what it should be.
    #[error("{}: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A token that the model does not have.
    #[error("{}: token {token} at position {index} is out of range: the model has tokens 0 to {}", path.display(), vocab_size - 1)]
    Token {
        /// The file.
        path: PathBuf,
        /// Which token of the file it is, from 0.
        index: u64,
        /// Its value.
        token: i128,
        /// Number of tokens that the model has.
        vocab_size: u32,
    },
    /// The tokenizer has more tokens than the model.
    #[error("the tokenizer has {tokenizer} tokens, more than the model's vocabulary of {model}")]
    Vocabulary {
        /// Tokens of the tokenizer.
        tokenizer: usize,
        /// Tokens of the model.
        model: u32,
    },
    /// Fewer tokens than one batch or sequence needs.
    #[error("{part} {tokens} tokens; {needs} at least {needed}")]
    TooShort {
        /// `the data has`, `the held-out data has`.
        part: &'static str,
        /// How many there are.
        tokens: u64,
        /// What needs more.
        needs: &'static str,
        /// How many it needs.
        needed: u64,
    },
    /// Batches without sequences, or sequences without tokens.
    #[error("a batch of {batch} sequences of {seq} tokens is not possible")]
    BatchShape {
        /// Sequences in a batch.
        batch: usize,
        /// Tokens in a sequence.
        seq: usize,
    },
    /// A cursor from other data.
    #[error("position {position} is behind the end of the data, {end}; the data has changed since")]
    Cursor {
        /// Where the cursor is.
        position: u64,
        /// Where the data ends.
        end: u64,
    },
    /// Buffers of another size than a batch. Only a caller's mistake leads here.
    #[error("a buffer of {found} tokens for a batch of {expected}")]
    Buffer {
        /// Tokens of a batch.
        expected: usize,
        /// Tokens of the buffer.
        found: usize,
    },
}

#[cfg(test)]
mod tests;
