//! Which saved state of a run did best on what is held out. It is kept beside the newest ones.

use std::path::Path;

use highwater_memory::saved::{Saved, verify};
use highwater_memory::{Files, FilesError};
use serde::{Deserialize, Serialize};

use super::facts;
use super::run_dir::RunDir;
use crate::error::{Code, Failure};
use crate::state_name::state_name;

/// The best state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// After how many steps it was.
    pub step: u64,
    /// Its mean loss on what is held out.
    pub held_out_loss: f32,
}

impl Best {
    /// Whether it did better than another. A loss that is not a number did not.
    pub fn is_better(&self, than: &Self) -> bool {
        self.held_out_loss < than.held_out_loss || than.held_out_loss.is_nan()
    }

    /// The one of the run in a folder; none where nothing was measured yet, or its file says nothing.
    ///
    /// # Errors
    /// [`FilesError`] for a file that cannot be read.
    pub fn read(files: &dyn Files, dir: &Path) -> Result<Option<Self>, FilesError> {
        facts::read(files, &RunDir::best_of(dir))
    }

    /// Remembers it.
    ///
    /// # Errors
    /// [`Failure`] for a file that cannot be written.
    pub fn write(&self, files: &dyn Files, run: &RunDir) -> Result<(), Failure> {
        facts::write(files, run, &RunDir::best_of(run.path()), self)
    }

    /// Its state, whole.
    ///
    /// # Errors
    /// [`Failure`] where there is none, or it is damaged.
    pub fn find(files: &dyn Files, dir: &Path) -> Result<Saved, Failure> {
        let Some(best) = Self::read(files, dir)? else {
            let message = format!(
                "--best: no state of {} is known to be the best",
                dir.display()
            );
            let hint = "leave it out; a run keeps the best state where it measures before its end: with --eval-every, or after each of \
                        several epochs of records";
            return Err(Failure::usage(message).hint(hint));
        };
        let path = RunDir::checkpoints_of(dir).join(state_name(best.step));
        if files.metadata(&path)?.is_none() {
            let message = format!("{}: the best state is not there any more", path.display());
            return Err(Failure::new(Code::Files, message).hint("leave out --best"));
        }
        Ok(verify(files, &path)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_better_and_nothing_is_worse_than_no_number() {
        let of = |held_out_loss| Best {
            step: 1,
            held_out_loss,
        };
        assert!(of(1.0).is_better(&of(2.0)) && !of(2.0).is_better(&of(1.0)));
        assert!(!of(1.0).is_better(&of(1.0)), "the earlier one stays");
        assert!(of(9.0).is_better(&of(f32::NAN)) && !of(f32::NAN).is_better(&of(9.0)));
    }
}
