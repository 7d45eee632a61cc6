//! Where the model of a run, or of a model folder, lies.

use std::path::{Path, PathBuf};

use highwater_memory::Files;

use super::Trained;
use crate::config::{LoraConfig, ModelSource, RunConfig};
use crate::error::Failure;
use crate::folder::digest::check_tokenizer;
use crate::folder::{Newest, Which, adapters, model_folder, state};

/// Where the weights of a model are.
pub(crate) struct Place {
    /// The folder of them all, or of the model that adapters were trained for.
    pub(crate) weights: PathBuf,
    /// The adapters that were trained for it, with their settings.
    pub(crate) adapters: Option<(LoraConfig, Trained)>,
    /// The file that says of which shape the model is: a `config.json`, or a run's `model.json`.
    pub(crate) shape: PathBuf,
}

impl Place {
    /// A model folder.
    ///
    /// # Errors
    /// [`Failure`] where it has no weights.
    pub(crate) fn of_folder(files: &dyn Files, folder: &Path) -> Result<Self, Failure> {
        model_folder::check_weights(files, folder)?;
        Ok(Self::whole(folder))
    }

    fn whole(folder: &Path) -> Self {
        Self {
            weights: folder.to_owned(),
            adapters: None,
            shape: folder.join("config.json"),
        }
    }

    /// The final model of a run or a saved state of it, with the model that its adapters are for. A folder without a
    /// run's settings may be a model's.
    ///
    /// # Errors
    /// [`Failure`] where there is none, and for files that cannot be read.
    pub(crate) fn find(
        files: &dyn Files,
        (dir, which): (&Path, Which),
        run: Option<&RunConfig>,
    ) -> Result<Self, Failure> {
        let adapted = run.and_then(|run| match (&run.model.lora, &run.model.source) {
            (Some(lora), ModelSource::Folder(base)) => Some((run, lora, base)),
            _ => None,
        });
        if let Some((run, ..)) = adapted {
            adapters::check_base(files, run)?;
        }
        let found = which.find(files, dir)?;
        if let Some((_, lora, base)) = adapted {
            let trained = match found {
                Some(Newest::Final(folder)) => Trained::Folder(folder),
                Some(Newest::Saved(saved)) => {
                    Trained::Saved(lora.clone(), saved.path().join(state::MODEL))
                }
                None => return Err(model_folder::unsaved(files, dir)?),
            };
            return Ok(Self {
                adapters: Some((lora.clone(), trained)),
                ..Self::whole(base)
            });
        }
        match found {
            Some(Newest::Final(last)) => Self::of_folder(files, &last),
            Some(Newest::Saved(saved)) => Ok(Self {
                weights: saved.path().to_owned(),
                adapters: None,
                shape: dir.join("model.json"),
            }),
            None if run.is_none() && files.metadata(&dir.join("config.json"))?.is_some() => {
                which.check_none()?;
                Self::of_folder(files, dir)
            }
            None => Err(model_folder::unsaved(files, dir)?),
        }
    }

    /// The model's tokenizer: the copy next to the trained weights, otherwise the file that the run was given.
    ///
    /// # Errors
    /// [`Failure`] where that file is another one by now.
    pub(crate) fn tokenizer(
        &self,
        files: &dyn Files,
        run: Option<&RunConfig>,
    ) -> Result<Option<PathBuf>, Failure> {
        let own = match &self.adapters {
            Some((_, trained)) => trained.beside(),
            None => &self.weights,
        };
        let own = own.join("tokenizer.json");
        if files.metadata(&own)?.is_some() {
            return Ok(Some(own));
        }
        let Some(run) = run else {
            return Ok(None);
        };
        check_tokenizer(files, run)?;
        Ok(run.model.tokenizer.clone())
    }

    /// The files and folders that the model's numbers are in.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let adapters = self.adapters.as_ref().map(|(_, trained)| trained.file());
        [self.weights.clone()].into_iter().chain(adapters).collect()
    }
}
