//! Trained adapters: in PEFT's files, or in a saved state of the run that trained them.

use std::path::{Path, PathBuf};

use highwater::{Engine, Module, skip_init};
use highwater_memory::Files;
use highwater_memory::files::Draft;
use highwater_models::adapter::{WEIGHTS, adapter_parameters, is_adapter};
use highwater_models::{Architecture, CausalLm, WeightsFolder};

use super::lora::load;
use super::tensors;
use crate::config::{LoraConfig, RunConfig};
use crate::error::Failure;
use crate::folder::adapters::adapters;
use crate::folder::{Newest, Which, state};

/// Trained adapters.
#[derive(Debug)]
pub(crate) enum Trained {
    /// In PEFT's files.
    Folder(PathBuf),
    /// In the file of weights of a run's saved state.
    Saved(LoraConfig, PathBuf),
}

impl Trained {
    /// The file of their weights.
    pub(crate) fn file(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(WEIGHTS),
            Self::Saved(_, path) => path.clone(),
        }
    }

    /// The folder that they lie in.
    pub(crate) fn beside(&self) -> &Path {
        match self {
            Self::Folder(folder) => folder,
            Self::Saved(_, path) => path.parent().unwrap_or(path),
        }
    }

    /// A folder of them in PEFT's files, and the draft beside `out` that it is if they are in a saved state.
    ///
    /// # Errors
    /// [`Failure`] for adapters that cannot be read, or a folder that cannot be written.
    pub(crate) fn as_folder<'a>(
        &self,
        files: &'a dyn Files,
        config: &dyn Architecture,
        out: &Path,
    ) -> Result<(PathBuf, Option<Draft<'a>>), Failure> {
        let lora = match self {
            Self::Folder(folder) => return Ok((folder.clone(), None)),
            Self::Saved(lora, _) => lora,
        };
        // Of the model nothing is read: frozen weights have no storage until then.
        let engine = Engine::builder().files().build()?;
        let model = skip_init(|| config.build(&engine))?;
        model.requires_grad_(false);
        self.load(files, &*model)?;
        let draft = Draft::folder(files, out)?;
        highwater_models::save_adapter(files, draft.path(), &*model, &lora.options(), None)?;
        Ok((draft.path().to_owned(), Some(draft)))
    }

    /// Gives them to the model that they were trained for.
    ///
    /// # Errors
    /// [`Failure`] for adapters that cannot be read, or are not for this model.
    pub(crate) fn load(&self, files: &dyn Files, model: &dyn CausalLm) -> Result<(), Failure> {
        match self {
            Self::Folder(folder) => {
                load(files, folder, model)?;
                Ok(())
            }
            Self::Saved(lora, _) => {
                lora.adapt(model)?;
                self.read(files, model)
            }
        }
    }

    /// Reads them into a model that has adapters already.
    ///
    /// # Errors
    /// [`Failure`] for adapters that cannot be read, or are not for this model.
    pub(crate) fn read(&self, files: &dyn Files, model: &dyn CausalLm) -> Result<(), Failure> {
        let own = match self {
            Self::Folder(_) => adapter_parameters(model),
            Self::Saved(..) => {
                let mut named = model.named_parameters();
                named.retain(|(name, _)| is_adapter(name));
                named
            }
        };
        tensors::read_tensors(&mut WeightsFolder::of_file(files, &self.file())?, &own, "")
    }
}

/// The adapters of a folder, which may be a run's: the newest or the best, or those that PEFT wrote. Returned with the
/// folder whose tokenizer and template belong to them.
///
/// # Errors
/// [`Failure`] for files that cannot be read.
pub(crate) fn trained(
    files: &dyn Files,
    (dir, run): (&Path, Option<&RunConfig>),
    which: Which,
) -> Result<Option<(Trained, PathBuf)>, Failure> {
    if let Some(lora) = run.and_then(|run| run.model.lora.clone()) {
        return Ok(match which.find(files, dir)? {
            Some(Newest::Final(folder)) => Some((Trained::Folder(folder.clone()), folder)),
            Some(Newest::Saved(saved)) => {
                let weights = saved.path().join(state::MODEL);
                Some((Trained::Saved(lora, weights), dir.join("final")))
            }
            None => None,
        });
    }
    which.check_none()?;
    let found = adapters(files, dir)?;
    Ok(found.map(|folder| (Trained::Folder(folder.clone()), folder)))
}
