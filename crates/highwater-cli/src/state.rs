//! Saved state: everything that a run needs to go on bit for bit.

use std::num::NonZeroUsize;
use std::path::Path;

use highwater::Parameter;
use highwater::optim::GradScaler;
use highwater_memory::saved::{
    SaveWriter, Saved, SavedError, keep_last, latest_complete, remove_newer,
};
use highwater_memory::spill::free_bytes;
use highwater_memory::{Bytes, Files, FilesError};
use highwater_models::adapter::WEIGHTS;
use highwater_models::module_file::{read_tensor, write_tensors};
use highwater_models::weights::INDEX;
use highwater_models::{Cursor, WeightsFolder};
use serde::{Deserialize, Serialize};

use crate::error::{Code, Failure};
use crate::output;
use crate::run_dir::{FINAL, RunDir};
use crate::session::Session;

/// File of the parameters, with Hugging Face's or torchvision's names.
pub const MODEL: &str = "model.safetensors";
/// File of the optimizer's moments.
const OPTIMIZER: &str = "optimizer.safetensors";
/// File of the counters.
const COUNTERS: &str = "state.json";
/// The files of a saved state.
pub const STATE_FILES: [&str; 3] = [MODEL, OPTIMIZER, COUNTERS];
/// The most bytes that the file of counters may have.
const COUNTERS_MAX: u64 = 1 << 16;

/// What is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Steps taken.
    pub step: u64,
    /// Steps that the optimizer counts.
    pub optimizer_steps: u64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// How many random streams were drawn.
    pub random_offset: u64,
    /// Where the next batch starts.
    pub cursor: Cursor,
    /// The scale of the loss, the steps since it changed, and how many were skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaler: Option<(f64, u64, u64)>,
}

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
    let name = name(step);
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

/// Drops all but the newest `keep` states, and the one after `best` steps.
///
/// # Errors
/// [`Failure`] if one cannot be removed.
pub fn drop_old(
    files: &dyn Files,
    dir: &Path,
    keep: usize,
    best: Option<u64>,
) -> Result<(), Failure> {
    let keep = NonZeroUsize::new(keep).unwrap_or(NonZeroUsize::MIN);
    let best = best.map(name);
    keep_last(files, dir, keep, best.as_deref())?;
    Ok(())
}

/// What the folder of the state after so many steps is called.
pub fn name(step: u64) -> String {
    format!("step-{step:06}")
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

/// The newest complete saved state, with a word on each that was skipped.
///
/// # Errors
/// [`Failure`] if states are there but none is whole.
pub fn newest(files: &dyn Files, dir: &Path) -> Result<Option<Saved>, Failure> {
    let found = latest_complete(files, dir)?;
    for skipped in &found.skipped {
        output::news(&format!(
            "skipped a saved state that is not whole: {}",
            skipped.why
        ));
    }
    if found.saved.is_none() && !found.skipped.is_empty() {
        let message = format!("{}: every saved state is damaged", dir.display());
        let hint = "restore a copy of one, or start a new run: `highwater train --force`";
        return Err(Failure::new(Code::Files, message).id("HW1012").hint(hint));
    }
    Ok(found.saved)
}

fn counters(files: &dyn Files, saved: &Saved) -> Result<Counters, Failure> {
    let mut reader = saved.read(files, COUNTERS)?;
    let damaged = |why: String| {
        let path = saved.path().join(COUNTERS);
        Failure::new(Code::Files, format!("{}: {why}", path.display()))
    };
    if reader.remaining() > COUNTERS_MAX {
        return Err(damaged("too large".to_owned()));
    }
    let mut json = vec![0; reader.remaining() as usize];
    reader.read_exact(&mut json)?;
    reader.finish()?;
    serde_json::from_slice(&json).map_err(|error| damaged(error.to_string()))
}

/// Reads tensors straight to where they lie.
///
/// # Errors
/// [`Failure`] if the file is damaged or its tensors are not these.
pub fn read_tensors(
    weights: &mut WeightsFolder<'_>,
    tensors: &[(String, Parameter)],
    base_prefix: &str,
) -> Result<(), Failure> {
    for (name, parameter) in tensors {
        // Hugging Face's base models leave out the prefix.
        let short = name.strip_prefix(base_prefix).unwrap_or(name);
        let name: &str = if weights.has(name) { name } else { short };
        read_tensor(weights.reader(name)?, name, parameter)??;
    }
    Ok(())
}

/// Whether a folder has weights of a whole model, in one file or as an index says.
///
/// # Errors
/// [`Failure`] where it cannot be looked at.
pub fn has_weights(files: &dyn Files, folder: &Path) -> Result<bool, Failure> {
    let has = |name: &str| files.metadata(&folder.join(name));
    Ok(has(MODEL)?.is_some() || has(INDEX)?.is_some())
}

/// Refuses a model folder whose weights are there in a form that is not read, with a word about it.
///
/// # Errors
/// [`Failure`] for weights in another format, or none.
pub fn check_weights(files: &dyn Files, folder: &Path) -> Result<(), Failure> {
    let has = |name: &str| Ok::<_, Failure>(files.metadata(&folder.join(name))?.is_some());
    if has(MODEL)? {
        return Ok(());
    }
    if has(INDEX)? {
        for path in WeightsFolder::open(files, folder)?.paths() {
            if files.metadata(&path)?.is_none() {
                let message = format!("{}: it is missing, though {INDEX} names it", path.display());
                return Err(Failure::new(Code::Files, message).id("HW1013"));
            }
        }
        return Ok(());
    }
    let folder_name = folder.display();
    if !has("pytorch_model.bin")? && !has("pytorch_model.bin.index.json")? {
        return Err(no_model(files, folder, MODEL)?);
    }
    let message = format!(
        "{folder_name}: its weights are pickled (pytorch_model.bin), which is not read here"
    );
    let hint = "make safetensors of them: in Python, \
                `AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OTHER)`";
    Err(Failure::usage(message).id("HW1034").hint(hint))
}

/// What to say of a folder that is not a model's, as `missing` is not there.
///
/// # Errors
/// [`Failure`] where it cannot be looked at.
pub fn no_model(files: &dyn Files, folder: &Path, missing: &str) -> Result<Failure, Failure> {
    let has = |name: &str| Ok::<_, Failure>(files.metadata(&folder.join(name))?.is_some());
    let name = folder.display();
    if has("config.toml")? {
        let hint = if has_weights(files, &folder.join(FINAL))? {
            format!(
                "the model that it ended with is in {}",
                folder.join(FINAL).display()
            )
        } else if has(FINAL)? {
            format!("`highwater merge {name} --out FOLDER` makes a model of its adapters")
        } else {
            format!("it has no model yet: `highwater resume {name}` goes on with it")
        };
        let message = format!("{name}: this is the folder of a run, not of a model");
        return Ok(Failure::usage(message).id("HW1032").hint(hint));
    }
    if has(WEIGHTS)? {
        let message = format!("{name}: adapters, without the model that they are for");
        let hint = "name the folder of the run that trained them, or add them to the model by `highwater merge`";
        return Ok(Failure::usage(message).id("HW1041").hint(hint));
    }
    let message = format!("{name}: there is no {missing}");
    let hint = "a model's folder has config.json and model.safetensors";
    Ok(Failure::new(Code::Files, message).id("HW1013").hint(hint))
}

/// What to say of a folder of a run without a model of its own.
///
/// # Errors
/// [`Failure`] where it cannot be looked at.
pub fn unsaved(files: &dyn Files, folder: &Path) -> Result<Failure, Failure> {
    let failure = Failure::usage(format!("{}: there is no model", folder.display()));
    let before = RunDir::replaced_of(folder);
    if files.metadata(&before.join("config.toml"))?.is_some() {
        return Ok(failure.hint(format!(
            "this run has saved nothing yet; the one that was here before is whole, in {}",
            before.display()
        )));
    }
    Ok(failure.hint("name the folder of a run that has saved something, or --model FOLDER"))
}

/// The step that a saved state is of, by its name.
pub fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// The step of the newest saved state in a folder, whole or not; none where there is none.
///
/// # Errors
/// [`FilesError`] for a folder that cannot be read.
pub fn newest_step(files: &dyn Files, dir: &Path) -> Result<Option<u64>, FilesError> {
    if files.metadata(dir)?.is_none() {
        return Ok(None);
    }
    let entries = files.list_dir(dir)?;
    let states = entries.iter().filter(|entry| entry.is_dir);
    Ok(states.filter_map(|entry| step_of(&entry.name)).max())
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
    let hint = format!(
        "free some space, name a folder on another disk with --out, or keep fewer states: each takes {}, \
         and --keep is {}",
        Bytes(state),
        output.keep
    );
    Err(Failure::new(Code::Files, message).id("HW1010").hint(hint))
}
