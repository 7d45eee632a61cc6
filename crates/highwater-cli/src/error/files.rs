//! Failures of files, of the disk that tensors wait on, and of saved states.

use std::io::ErrorKind;

use highwater_memory::FilesError;
use highwater_memory::files::Operation;
use highwater_memory::saved::SavedError;
use highwater_memory::spill::SpillError;

use super::failure::{Code, Failure};
use crate::state_name::step_of;

impl From<FilesError> for Failure {
    fn from(error: FilesError) -> Self {
        let (full, dropped) = (error.is_disk_full(), is_of_dropped_state(&error));
        let is_in_the_way = error.operation == Operation::CreateDir
            && matches!(
                error.source.kind(),
                ErrorKind::AlreadyExists | ErrorKind::NotADirectory
            );
        let failure = Self::new(Code::Files, error);
        if is_in_the_way {
            return failure.hint(
                "a file is in the way, or a link that leads nowhere: choose another folder, or remove it",
            );
        }
        if dropped {
            return failure.hint(
                "the run replaced this state by a newer one meanwhile: run the command again",
            );
        }
        if full {
            return failure
                .id("HW1010")
                .hint("free some space and run the command again");
        }
        failure
    }
}

/// Whether a file is gone together with the saved state that it was of.
fn is_of_dropped_state(error: &FilesError) -> bool {
    let state = error.path.parent();
    let name = state.and_then(|state| state.file_name()?.to_str());
    let is_read = matches!(
        error.operation,
        Operation::Open | Operation::Read | Operation::List | Operation::Inspect
    );
    error.is_not_found()
        && is_read
        && name.and_then(step_of).is_some()
        && state.is_some_and(|state| !state.exists())
}

impl From<SpillError> for Failure {
    fn from(error: SpillError) -> Self {
        let full = error.is_full();
        let code = match &error {
            // A folder that cannot be one for this is a setting that is not possible.
            SpillError::Create { source, .. } if is_of_the_folder(source.kind()) => Code::Usage,
            _ => Code::Files,
        };
        let failure = Self::new(code, error).id("HW1011");
        if full {
            return failure.hint("free some space, or use a folder on another disk");
        }
        failure
    }
}

/// Whether a file cannot be made in a folder because of what the folder is.
fn is_of_the_folder(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
    )
}

impl From<SavedError> for Failure {
    fn from(error: SavedError) -> Self {
        match error {
            SavedError::Files(error) => error.into(),
            error => Self::new(Code::Files, error).id("HW1012"),
        }
    }
}
