//! After which step the model in a run's folder `final` is.

use std::path::Path;

use highwater_memory::Files;
use serde::{Deserialize, Serialize};

use super::facts;
use crate::error::Failure;

/// After which step the model in a run's folder `final` is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FinalStep {
    pub(crate) step: u64,
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
