//! Whether a run fits, before anything is allocated.

use highwater_memory::{Files, spill};

use super::assumptions::Assumptions;
use super::planner::Planner;
use super::{budget, refusal};
use crate::config::RunConfig;
use crate::error::Failure;
use crate::model::Blueprint;

/// Plans before anything is allocated: what the run will take, if that fits, and the reserve that this
/// counts on. Where only less than the budget does, it is lowered.
pub(crate) fn fitting(
    files: &dyn Files,
    config: &mut RunConfig,
    model: &Blueprint,
    has_tokens: bool,
) -> Result<(highwater::Forecast, u64), Failure> {
    if let Some(disk) = &config.machine.disk {
        // A full disk is told before anything is planned; its space is given back at once.
        drop(spill::open(&disk.folder, disk.bytes.0, 0)?);
    }
    let mut assumptions = Assumptions::measure(files, config, model)?;
    if has_tokens {
        assumptions.tokenize_bytes = 0;
    }
    let mut planner = Planner::new(config, model, &assumptions);
    let mut forecast = planner.forecast()?;
    if !forecast.fits {
        forecast = planner.within()?;
    }
    // What planning took is not there while the run plans and computes.
    drop(planner);
    if !forecast.fits {
        return Err(refusal::refused(&forecast, config).hints(model.large_data(files, config)?));
    }
    budget::keep_to_planned(config, &forecast);
    highwater_memory::heap::release_unused();
    let reserve = assumptions.reserve(config, model);
    Ok((forecast, reserve))
}
