//! Adapters: given to a model, read and written.

use std::path::Path;

use highwater::Module;
use highwater::nn::add_adapters;
use highwater_memory::Files;
use highwater_models::CausalLm;

use crate::config::{LoraConfig, ModelSource};
use crate::error::{Failure, without_lines};

impl LoraConfig {
    /// Freezes a model and gives it adapters.
    ///
    /// # Errors
    /// [`Failure`] where no layer has one of the names, or there is no room.
    pub fn adapt(&self, model: &dyn Module) -> Result<Vec<String>, Failure> {
        let adapted = add_adapters(model, &self.options());
        adapted.map_err(|error| {
            of_layers(
                error,
                "use --lora-targets with layers of this model, or remove it to adapt all of them",
            )
        })
    }
}

/// Why a model has no such adapters: its user named layers that it does not have.
fn of_layers(error: highwater::Error, hint: &str) -> Failure {
    match error {
        highwater::Error::Usage { .. } => Failure::usage(without_lines(&error.to_string()).0)
            .id("HW1041")
            .hint(hint),
        error => error.into(),
    }
}

/// Gives a model the adapters of a folder.
///
/// # Errors
/// [`Failure`] for adapters that are not for the model, and files that cannot be read.
pub(crate) fn load(files: &dyn Files, folder: &Path, model: &dyn CausalLm) -> Result<(), Failure> {
    let loaded = highwater_models::load_adapter(files, folder, model);
    let hint = "these adapters are for another model, or their adapter_config.json was changed";
    loaded.map(drop).map_err(|error| match error {
        error @ highwater::Error::Saved(_) => Failure::of_weights(error),
        error => of_layers(error, hint),
    })
}

/// Writes a run's adapters as PEFT loads them.
///
/// # Errors
/// [`Failure`] if a file cannot be written.
pub(crate) fn export(
    files: &dyn Files,
    folder: &Path,
    model: &dyn CausalLm,
    (lora, source): (&LoraConfig, &ModelSource),
) -> Result<(), Failure> {
    let base = match source {
        ModelSource::Folder(path) => path.to_str(),
        ModelSource::Preset(_) | ModelSource::Config(_) => None,
    };
    highwater_models::save_adapter(files, folder, model, &lora.options(), base)?;
    Ok(())
}
