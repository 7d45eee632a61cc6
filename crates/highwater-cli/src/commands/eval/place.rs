//! Where the model that `eval` is to look at lies.

use std::path::{Path, PathBuf};

use highwater_memory::Files;
use highwater_models::adapter::WEIGHTS;

use super::EvalArgs;
use crate::config::{ModelSource, RunConfig};
use crate::error::Failure;
use crate::folder::{Newest, adapters, model_folder, state};

/// Where the weights of a model are.
pub(super) struct Place {
    /// The folder of them all, or of the model that adapters are beside.
    pub(super) weights: PathBuf,
    /// The file of adapters, and whether it has PEFT's names.
    pub(super) adapters: Option<(PathBuf, bool)>,
    /// What says of which shape the model is: its folder, or a `model.json`.
    pub(super) shape: PathBuf,
}

impl Place {
    /// Of a run's final model or its newest saved state, with what it is beside, or a model folder.
    pub(super) fn find(
        files: &dyn Files,
        args: &EvalArgs,
        run: Option<&RunConfig>,
    ) -> Result<Self, Failure> {
        let nothing = || {
            let hint = "give the folder of a run, such as runs/gpt2-nano, or --model FOLDER";
            Failure::usage("eval needs a model").hint(hint)
        };
        let folder = args.dir.as_ref().or(args.model.as_ref());
        let folder = folder.ok_or_else(nothing)?.clone();
        let whole = |folder: PathBuf| Place {
            weights: folder.clone(),
            adapters: None,
            shape: folder,
        };
        let Some(run) = run else {
            if files.metadata(&folder)?.is_none() {
                let message = format!("{}: there is no such folder", folder.display());
                return Err(Failure::usage(message));
            }
            args.which.check_none()?;
            model_folder::check_weights(files, &folder)?;
            return Ok(whole(folder));
        };
        let find = || match args.which.find(files, &folder)? {
            Some(found) => Ok(found),
            None => Err(model_folder::unsaved(files, &folder)?),
        };
        if let (Some(_), ModelSource::Folder(base)) = (&run.model.lora, &run.model.source) {
            adapters::check_base(files, run)?;
            let adapters = match find()? {
                Newest::Final(folder) => (folder.join(WEIGHTS), true),
                Newest::Saved(saved) => (saved.path().join(state::MODEL), false),
            };
            return Ok(Place {
                adapters: Some(adapters),
                ..whole(base.clone())
            });
        }
        match find()? {
            Newest::Final(last) => {
                model_folder::check_weights(files, &last)?;
                Ok(whole(last))
            }
            Newest::Saved(saved) => Ok(Place {
                weights: saved.path().to_owned(),
                adapters: None,
                shape: folder.join("model.json"),
            }),
        }
    }

    /// The folder in which a run's own files stand beside the model or its adapters.
    pub(super) fn beside(&self) -> &Path {
        let adapters = self.adapters.as_ref();
        adapters
            .and_then(|(path, _)| path.parent())
            .unwrap_or(&self.weights)
    }

    /// The files and folders that the model's numbers are in.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let adapters = self.adapters.iter().map(|(path, _)| path.clone());
        [self.weights.clone()].into_iter().chain(adapters).collect()
    }
}
