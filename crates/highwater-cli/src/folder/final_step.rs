//! After which step the model in a run's folder `final` is.

use std::path::Path;

use highwater_memory::Files;
use serde::{Deserialize, Serialize};

use super::{RunDir, facts};
use crate::error::Failure;

/// After which step the model in a run's folder `final` is.
#[derive(Debug, Serialize, Deserialize)]
struct FinalStep {
    step: u64,
}

/// What a file says of the step that the folder `final` is of; none where that is not known, or not all of the folder
/// is written.
///
/// # Errors
/// [`Failure`] for a file that cannot be read.
pub(crate) fn final_step(files: &dyn Files, path: &Path) -> Result<Option<u64>, Failure> {
    let found = facts::read::<FinalStep>(files, path)?;
    Ok(found.map(|found| found.step))
}

/// Notes that the folder `final` is all written, and of which step it is.
///
/// # Errors
/// [`Failure`] for a file that cannot be written.
pub(crate) fn write_final_step(files: &dyn Files, run: &RunDir, step: u64) -> Result<(), Failure> {
    facts::write(files, run, &run.final_step(), &FinalStep { step })
}
