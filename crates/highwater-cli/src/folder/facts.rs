//! Small files in a run's folder that say something of it, in JSON.

use std::path::Path;

use highwater_memory::saved::write_atomic;
use highwater_memory::{Files, FilesError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::run_dir::RunDir;
use crate::error::{Code, Failure};

/// The most bytes that one may have.
const BYTES_MAX: u64 = 1 << 16;

/// What a file says; none where it is not there, or says nothing of the kind.
///
/// # Errors
/// [`FilesError`] for a file that cannot be read.
pub(crate) fn read<T: DeserializeOwned>(
    files: &dyn Files,
    path: &Path,
) -> Result<Option<T>, FilesError> {
    let found = files.metadata(path)?;
    if found.is_none_or(|found| found.is_dir || found.bytes > BYTES_MAX) {
        return Ok(None);
    }
    let mut file = files.open(path)?;
    let mut json = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut json)?;
    // A damaged file says nothing.
    Ok(serde_json::from_slice(&json).ok())
}

/// Writes a file of the run.
///
/// # Errors
/// [`Failure`] for a file that cannot be written.
pub(crate) fn write(
    files: &dyn Files,
    run: &RunDir,
    path: &Path,
    fact: &impl Serialize,
) -> Result<(), Failure> {
    run.own(files, [path.to_owned()])?;
    let json = serde_json::to_vec(fact).map_err(|error| Failure::new(Code::Internal, error))?;
    Ok(write_atomic(files, path, &json)?)
}
