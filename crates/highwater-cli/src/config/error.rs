//! What can be wrong with the settings of a run.

use std::path::PathBuf;

use highwater_memory::FilesError;

use crate::error::{Code, Failure};

/// What can be wrong with the settings of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The file is not what this program writes.
    #[error("{}: {problem}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        problem: String,
    },
    /// The file is not what was written there.
    #[error("{}: damaged, or changed by hand: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What tells.
        problem: String,
    },
    /// A setting out of range.
    #[error("`{setting}` is {value}; expected {expected}")]
    Range {
        /// Its name, as a flag without the dashes.
        setting: &'static str,
        /// What was given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Files(error) => error.into(),
            error @ SettingsError::Damaged { .. } => Self::new(Code::Files, error)
                .id("HW1031")
                .hint("restore a copy of it, or start a new run with `highwater train`"),
            error @ SettingsError::Range { .. } => Self::new(Code::Usage, error).id("HW1030"),
            error => Self::new(Code::Usage, error).id("HW1031"),
        }
    }
}
