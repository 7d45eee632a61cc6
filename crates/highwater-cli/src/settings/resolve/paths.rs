//! Paths that outlive the folder that the program was started in.

use std::path::{Path, PathBuf};

use crate::error::Failure;

/// Settings outlive the folder that the program was started in.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::usage(format!("the path `{}`: {error}", path.display())))
}
