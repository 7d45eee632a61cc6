//! The newest model of a run: its folder `final`, or a saved state where the run has gone on since.

use std::path::{Path, PathBuf};

use highwater_memory::Files;
use highwater_memory::saved::Saved;
use highwater_models::adapter::WEIGHTS;

use crate::error::Failure;
use crate::run_dir::RunDir;
use crate::{final_model, output, state};

/// Where the newest model of a run is.
#[derive(Debug)]
pub enum Newest {
    /// In the folder `final`: a model's folder, or one of adapters.
    Final(PathBuf),
    /// In a saved state.
    Saved(Saved),
}

/// Finds the newest model of the run in a folder, and says so where that is not the model which the run ended with.
///
/// # Errors
/// [`Failure`] for files that cannot be read, and where states are saved but none is whole.
pub fn newest(files: &dyn Files, dir: &Path) -> Result<Option<Newest>, Failure> {
    let last = dir.join("final");
    let is_there =
        state::has_weights(files, &last)? || files.metadata(&last.join(WEIGHTS))?.is_some();
    let of = final_model::final_step(files, &RunDir::final_step_of(dir))?;
    let states = dir.join("checkpoints");
    // None is less than any step.
    if is_there && state::newest_step(files, &states)? <= of {
        return Ok(Some(Newest::Final(last)));
    }
    let saved = match state::newest(files, &states) {
        // What was trained since is lost, which was said; the model that the run ended with is not.
        Err(failure) if is_there => {
            output::news(&format!("warning: {}", failure.message()));
            None
        }
        found => found?,
    };
    Ok(match saved {
        Some(saved) if !is_there => Some(Newest::Saved(saved)),
        Some(saved) if of.is_none_or(|of| saved.number() > of) => {
            output::news(&format!(
                "note: this is the model after step {}, of {}: the run has gone on since it wrote {}",
                saved.number(),
                saved.path().display(),
                last.display()
            ));
            Some(Newest::Saved(saved))
        }
        _ => is_there.then_some(Newest::Final(last)),
    })
}
