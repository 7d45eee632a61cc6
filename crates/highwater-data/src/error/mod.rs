//! What can go wrong.

#[cfg(feature = "images")]
mod layout;

use highwater_memory::FilesError;
use std::path::{Path, PathBuf};

#[cfg(feature = "images")]
pub use layout::LayoutError;

/// What a dataset of a user's may answer.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of the data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A dataset could not answer a sample.
    #[error("sample {index}: {source}")]
    Sample {
        /// Its index.
        index: usize,
        /// What the dataset said.
        source: BoxError,
    },
    /// A dataset panicked.
    #[error("sample {index}: the dataset panicked: {message}")]
    Panicked {
        /// The sample's index.
        index: usize,
        /// What it said.
        message: String,
    },
    /// Samples could not be put into a batch.
    #[error("the batch of samples {indices:?}: {source}")]
    Collate {
        /// Their indices.
        indices: Vec<usize>,
        /// What is wrong.
        source: BoxError,
    },
    /// Settings, shapes or types that cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// A file that does not hold what it should.
    #[error("{}: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Images that lie in folders as none should.
    #[cfg(feature = "images")]
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A file could not be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The system gave no thread.
    #[error("cannot start a worker of the loader: {0}")]
    Thread(std::io::Error),
}

impl DataError {
    pub(crate) fn format(path: &Path, problem: impl Into<String>) -> Self {
        Self::Format {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }
}
