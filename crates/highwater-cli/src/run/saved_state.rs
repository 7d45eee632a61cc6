//! Saved state: everything that a run needs to go on bit for bit.

use std::path::Path;

use highwater::Parameter;
use highwater::optim::GradScaler;
use highwater_memory::saved::{SaveWriter, SavedError, remove_newer};
use highwater_memory::spill::free_bytes;
use highwater_memory::{Bytes, Files};
use highwater_models::module_file::write_tensors;
use highwater_models::{Cursor, WeightsFolder};

use crate::error::{Code, Failure};
use crate::folder::state::{COUNTERS, MODEL, OPTIMIZER, STATE_FILES, counters, newest};
use crate::folder::{Counters, RunDir};
use crate::model::tensors::read_tensors;
use crate::session::Session;
use crate::state_name::state_name;

/// Saves the state after `step` steps, atomically.
///
/// # Errors
/// [`Failure`] if a file cannot be written, or the engine stopped halfway through a step.
pub fn save(
    files: &dyn Files,
    dir: &Path,
    session: &Session,
    step: u64,
    cursor: Cursor,
) -> Result<(), Failure> {
    session.engine.check_poison()?;
    let name = state_name(step);
    let mut writer = match SaveWriter::begin(files, dir, &name) {
        Err(SavedError::AlreadySaved(_)) => return Ok(()),
        other => other?,
    };
    let model = session.model.saved();
    write_tensors(writer.file(MODEL)?, &dir.join(&name).join(MODEL), &model)??;
    let moments = session.optimizer.state_dict();
    write_tensors(
        writer.file(OPTIMIZER)?,
        &dir.join(&name).join(OPTIMIZER),
        &moments,
    )??;
    let (seed, random_offset) = session.engine.rng_state();
    let optimizer_steps = session.optimizer.steps();
    let counters = Counters {
        step,
        optimizer_steps,
        seed,
        random_offset,
        cursor,
        scaler: session.scaler.as_ref().map(GradScaler::state),
    };
    let json = serde_json::to_vec_pretty(&counters)
        .map_err(|error| Failure::new(Code::Internal, error))?;
    let mut file = writer.file(COUNTERS)?;
    file.write_all(&json)?;
    file.close()?;
    writer.finish()?;
    Ok(())
}

/// Loads the newest complete saved state, says which it skipped, and removes newer ones that are
/// damaged. `None` if there is none.
///
/// # Errors
/// [`Failure`] if a state is there but none can be used, or it does not fit the model.
pub fn load(
    files: &dyn Files,
    dir: &Path,
    session: &mut Session,
) -> Result<Option<Counters>, Failure> {
    let Some(saved) = newest(files, dir)? else {
        return Ok(None);
    };
    read_tensors(
        &mut WeightsFolder::of_file(files, &saved.path().join(MODEL))?,
        &session.model.saved(),
        session.model.base_prefix(),
    )?;
    let counters = counters(files, &saved)?;
    session.optimizer.set_steps(counters.optimizer_steps)?;
    read_tensors(
        &mut WeightsFolder::of_file(files, &saved.path().join(OPTIMIZER))?,
        &session.optimizer.state_dict(),
        "",
    )?;
    if let (Some(scaler), Some(state)) = (&mut session.scaler, counters.scaler) {
        scaler.load_state(state)?;
    }
    session
        .engine
        .set_rng_state(counters.seed, counters.random_offset);
    session.engine.clear_poison();
    remove_newer(files, dir, saved.number(), &STATE_FILES)?;
    Ok(Some(counters))
}

/// Bytes of all files of a saved state, and of a trained model.
pub fn saved_bytes(session: &Session) -> (u64, u64) {
    let bytes = |tensors: &[(String, Parameter)]| -> u64 {
        let bytes = |parameter: &Parameter| parameter.dtype().bytes(parameter.shape());
        tensors.iter().map(|(_, parameter)| bytes(parameter)).sum()
    };
    let model = bytes(&session.model.saved());
    (model + bytes(&session.optimizer.state_dict()), model)
}

/// That the disk has room for what a run of so many steps more will save.
///
/// # Errors
/// [`Failure`] where it has not.
pub fn check_space(
    files: &dyn Files,
    dir: &RunDir,
    session: &Session,
    steps: u64,
) -> Result<(), Failure> {
    let Some(free) = free_bytes(dir.path()) else {
        return Ok(());
    };
    let (state, model) = saved_bytes(session);
    let output = &session.config().output;
    let there = match files.metadata(&dir.checkpoints())? {
        Some(_) => {
            let entries = files.list_dir(&dir.checkpoints())?;
            entries.iter().filter(|entry| entry.is_dir).count() as u64
        }
        None => 0,
    };
    // One more than is kept is there while it is written, and the best one stays besides.
    let most = (output.keep as u64).saturating_add(1 + u64::from(output.eval_every.is_some()));
    let saves = steps
        .div_ceil(output.save_every)
        .saturating_add(there)
        .min(most);
    let needed = state
        .saturating_mul(saves.saturating_sub(there).max(1))
        .saturating_add(model);
    if needed <= free {
        return Ok(());
    }
    let message = format!(
        "{}: the run's saved states need {}, and {} are free there",
        dir.path().display(),
        Bytes(needed),
        Bytes(free)
    );
    let fewer = match output.keep {
        0 | 1 => String::new(),
        keep => format!(", or a smaller --keep than {keep}"),
    };
    let hint = format!(
        "free some space, use --out with a folder on another disk{fewer}: each state has {}",
        Bytes(state)
    );
    Err(Failure::new(Code::Files, message).id("HW1010").hint(hint))
}
