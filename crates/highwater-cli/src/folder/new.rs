//! That nothing is where a folder or a file is to be made.

use std::path::Path;

use crate::error::Failure;

/// That nothing is at a path that is to be written to, a dangling link neither.
///
/// # Errors
/// [`Failure`] where something is.
pub(crate) fn check_new(out: &Path) -> Result<(), Failure> {
    if out.symlink_metadata().is_err() {
        // What else is wrong with the path is said when it is written to.
        return Ok(());
    }
    let message = format!("{} exists already", out.display());
    Err(Failure::usage(message).hint("choose another name with --out"))
}
