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
    #[error("{} is {}; expected {expected}", named(place.as_deref(), setting), short(value))]
    Range {
        /// Its name, as a flag without the dashes.
        setting: &'static str,
        /// Where the value was given, if that is known: a line of a file, say.
        place: Option<String>,
        /// What was given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
}

fn named(place: Option<&str>, setting: &str) -> String {
    place.map_or_else(|| format!("--{setting}"), str::to_owned)
}

/// A number of hundreds of digits as people write it.
fn short(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(number) if value.len() > 20 => format!("{number:e}"),
        _ => value.to_owned(),
    }
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
