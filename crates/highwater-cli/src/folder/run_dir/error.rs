//! What can be wrong with a run's folder.

use std::io;
use std::path::PathBuf;

use highwater_memory::FilesError;

use crate::error::{Code, Failure};

/// What can be wrong with a run's folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// A file operation failed.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Another process trains there.
    #[error("{}: another process is training there", .0.display())]
    Locked(PathBuf),
    /// The lock cannot be taken.
    #[error("cannot lock {}: {source}", path.display())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is a run already.
    #[error("{} already contains a run", .0.display())]
    InUse(PathBuf),
    /// There is no run.
    #[error("{}: there is no run in this folder", .0.display())]
    NoRun(PathBuf),
    /// There is a file that no run wrote.
    #[error("{}: this is not a file of a run, so --force does not replace it", .0.display())]
    Foreign(PathBuf),
    /// What the new run reads would be replaced by it.
    #[error("{}: the new run reads this, and --force would replace the run that contains it", .0.display())]
    Input(PathBuf),
}

impl From<RunDirError> for Failure {
    fn from(error: RunDirError) -> Self {
        let hint = match &error {
            RunDirError::InUse(path) => {
                let path = path.display();
                format!("`highwater resume {path}` continues it; --force replaces it")
            }
            RunDirError::NoRun(_) => "give the folder of a run: it has a config.toml".to_owned(),
            RunDirError::Locked(_) => "wait for it, or use another folder with --out".to_owned(),
            RunDirError::Foreign(_) => {
                "move it elsewhere, or use another folder with --out".to_owned()
            }
            RunDirError::Input(_) => "use another folder with --out".to_owned(),
            _ => String::new(),
        };
        let failure = match error {
            RunDirError::Files(error) => error.into(),
            RunDirError::Lock { .. } | RunDirError::Locked(_) => Self::new(Code::Files, error),
            error => Self::new(Code::Usage, error),
        };
        if hint.is_empty() {
            failure
        } else {
            failure.hint(hint)
        }
    }
}
