//! The newest or the best model of a run: its folder `final`, or a saved state where the run has gone on since.

use std::path::{Path, PathBuf};

use clap::Args;
use highwater_memory::Files;
use highwater_memory::saved::Saved;
use highwater_models::adapter::WEIGHTS;

use super::best::Best;
use super::run_dir::RunDir;
use super::{final_step, model_folder, state};
use crate::error::Failure;
use crate::terminal::output;

/// Where the newest model of a run is.
#[derive(Debug)]
pub enum Newest {
    /// In the folder `final`: a model's folder, or one of adapters.
    Final(PathBuf),
    /// In a saved state.
    Saved(Saved),
}

/// Which model of a run is asked for. Not a doc comment for people: clap shows the field's.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Use the run's state with the lowest validation loss, instead of the newest one
    #[arg(long)]
    pub best: bool,
}

impl Which {
    /// Finds that model of the run in a folder.
    ///
    /// # Errors
    /// [`Failure`] for files that cannot be read, where states are saved but none is whole, and where no state is
    /// known to be the best.
    pub fn find(self, files: &dyn Files, dir: &Path) -> Result<Option<Newest>, Failure> {
        if !self.best {
            return newest(files, dir);
        }
        let last = RunDir::final_step_of(dir);
        let best = Best::find(files, dir)?;
        if final_step::final_step(files, &last)? == Some(best.number()) {
            return newest(files, dir);
        }
        Ok(Some(Newest::Saved(best)))
    }

    /// Refuses a model that is no run's.
    ///
    /// # Errors
    /// [`Failure`] where the best one is asked for.
    pub fn check_none(self) -> Result<(), Failure> {
        if self.best {
            let message = "--best needs a run, and this is a model folder";
            return Err(Failure::usage(message).hint("leave it out, or name the folder of a run"));
        }
        Ok(())
    }
}

/// Finds the newest model of the run in a folder, and says so where that is not the model which the run ended with.
///
/// # Errors
/// [`Failure`] for files that cannot be read, and where states are saved but none is whole.
fn newest(files: &dyn Files, dir: &Path) -> Result<Option<Newest>, Failure> {
    let last = dir.join("final");
    let is_there =
        model_folder::has_weights(files, &last)? || files.metadata(&last.join(WEIGHTS))?.is_some();
    let of = final_step::final_step(files, &RunDir::final_step_of(dir))?;
    let states = RunDir::checkpoints_of(dir);
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
                "note: using the state after step {}, {}, which is newer than {}",
                saved.number(),
                saved.path().display(),
                last.display()
            ));
            Some(Newest::Saved(saved))
        }
        _ => is_there.then_some(Newest::Final(last)),
    })
}
