//! That the data and the weights that settings name are there.

use highwater_memory::Files;
use highwater_models::DataError;

use crate::config::{ModelSource, RunConfig};
use crate::error::Failure;
use crate::folder::model_folder;
use crate::hub;

/// That the data is there, and is a folder or a regular file.
///
/// # Errors
/// [`Failure`] where it is not.
pub(crate) fn check_data(files: &dyn Files, config: &RunConfig) -> Result<(), Failure> {
    let Some(path) = &config.data.path else {
        return Ok(());
    };
    match files.metadata(path)? {
        None => Err(DataError::Missing { path: path.clone() }.into()),
        Some(found) if found.is_dir => Ok(()),
        Some(_) => Ok(files.open(path).map(drop)?),
    }
}

/// That there are weights to begin with, where a run goes on from some.
///
/// # Errors
/// [`Failure`] where there are none.
pub(crate) fn check_source(files: &dyn Files, config: &RunConfig) -> Result<(), Failure> {
    match &config.model.source {
        ModelSource::Folder(file) if files.metadata(file)?.is_some_and(|found| !found.is_dir) => {
            let message = format!(
                "{}: a model's configuration, without its weights",
                file.display()
            );
            Err(Failure::usage(message).hint(
                "give the model's folder, or train from scratch with --init-from FILE; `highwater plan` shows what it \
                 would take",
            ))
        }
        ModelSource::Folder(folder) => {
            hub::weights(folder)?;
            model_folder::check_weights(files, folder)
        }
        source if config.model.lora.is_some() => {
            let message =
                format!("--lora fine-tunes a trained model, and {source} has no trained weights");
            Err(Failure::usage(message)
                .id("HW1041")
                .hint("name a model folder: --model FOLDER"))
        }
        source if config.training.preference.is_some() => {
            let message = format!(
                "--preference fine-tunes a trained model, and {source} has no trained weights"
            );
            Err(Failure::usage(message).hint("name a model folder: --model FOLDER"))
        }
        ModelSource::Preset(_) | ModelSource::Config(_) => Ok(()),
    }
}
