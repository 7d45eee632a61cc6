//! Saved states in a run's folder: which there are, and what they count.

use std::num::NonZeroUsize;
use std::path::Path;

use highwater_memory::saved::{Saved, keep_last, latest_complete};
use highwater_memory::{Files, FilesError};
use highwater_models::Cursor;
use serde::{Deserialize, Serialize};

use crate::error::{Code, Failure};
use crate::state_name::{state_name, step_of};
use crate::terminal::output;

/// File of the parameters, with Hugging Face's or torchvision's names.
pub const MODEL: &str = "model.safetensors";
/// File of the optimizer's moments.
pub(crate) const OPTIMIZER: &str = "optimizer.safetensors";
/// File of the counters.
pub(crate) const COUNTERS: &str = "state.json";
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
    let best = best.map(state_name);
    keep_last(files, dir, keep, best.as_deref())?;
    Ok(())
}

/// The newest complete saved state, with a word on each that was skipped.
///
/// # Errors
/// [`Failure`] if states are there but none is whole.
pub fn newest(files: &dyn Files, dir: &Path) -> Result<Option<Saved>, Failure> {
    let found = latest_complete(files, dir)?;
    for skipped in &found.skipped {
        output::news(&format!("skipped a saved state: {}", skipped.why));
    }
    if found.saved.is_none() && !found.skipped.is_empty() {
        let message = format!("{}: every saved state is damaged", dir.display());
        let hint = "restore a copy of one, or start a new run: `highwater train --force`";
        return Err(Failure::new(Code::Files, message).id("HW1012").hint(hint));
    }
    Ok(found.saved)
}

pub(crate) fn counters(files: &dyn Files, saved: &Saved) -> Result<Counters, Failure> {
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
