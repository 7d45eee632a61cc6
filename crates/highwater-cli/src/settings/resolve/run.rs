//! The settings of a new run, or of a plan.

use highwater_memory::Files;

use super::checks::{check_quantize, check_task, note_on_dropout};
use super::data::data;
use super::defaults::Defaults;
use super::machine::machine;
use super::model;
use super::optimizer::optimizer;
use super::training::{check_length, training};
use crate::args::table::Table;
use crate::args::{RunArgs, Settings, Subset};
use crate::config::{ModelConfig, OutputConfig, RunConfig, Task};
use crate::data::held_out::check_use;
use crate::error::Failure;
use crate::model::Blueprint;
use crate::settings::from_config::locate;

/// The settings of a run with the configuration of its model.
#[derive(Debug)]
pub struct Resolved {
    /// The settings.
    pub config: RunConfig,
    /// The model's configuration, dropout included.
    pub model: Blueprint,
    /// What people may not expect of it.
    pub notes: Vec<String>,
}

impl<S: Subset> RunArgs<S> {
    /// The settings, completed and resolved.
    ///
    /// # Errors
    /// As [`RunArgs::complete`] and `resolve`. Of a value that is out of range it is said where it was given.
    pub(crate) fn resolved(
        &self,
        files: &dyn Files,
        resolve: impl FnOnce(&dyn Files, &Settings) -> Result<Resolved, Failure>,
    ) -> Result<(Settings, Resolved), Failure> {
        let settings = self.complete(files)?;
        let resolved = resolve(files, &settings).map_err(|failure| {
            failure.change(|error| locate(error, |setting| self.place_of(files, setting)))
        })?;
        Ok((settings, resolved))
    }
}

/// The settings that `train` was asked for.
///
/// # Errors
/// [`Failure`] for settings that are not possible.
pub fn train(files: &dyn Files, settings: &Settings) -> Result<Resolved, Failure> {
    let resolved = run(files, settings)?;
    check_use(files, &resolved.config)?;
    Ok(resolved)
}

/// The settings of a run, or of a plan of one.
///
/// # Errors
/// [`Failure`] for settings that are not possible.
pub fn run(files: &dyn Files, settings: &Settings) -> Result<Resolved, Failure> {
    let (source, model, mut notes) = model::model(files, settings)?;
    let task = model.task();
    check_task(settings, task)?;
    let lora = settings.lora_config()?;
    check_quantize(settings, &model)?;
    let records = match task {
        Task::TextGeneration => settings.records_config(files, settings.data.as_deref())?,
        Task::ImageClassification => None,
    };
    let defaults = Defaults::of(task, &source, records.is_some());
    check_length(settings)?;
    let training = training(settings, &model, defaults, records.is_some())?;
    let mut output = OutputConfig::default();
    output.apply(settings);
    let config = RunConfig {
        version: RunConfig::VERSION,
        task,
        data: data(files, settings, &model, (records, defaults))?,
        optimizer: optimizer(settings, (&source, training.steps), defaults)?,
        machine: machine(settings, defaults)?,
        output,
        model: ModelConfig {
            tokenizer: match task {
                Task::TextGeneration => {
                    model::tokenizer(files, settings.tokenizer.as_deref(), &source)?
                }
                Task::ImageClassification => None,
            },
            source,
            dropout: settings.dropout.unwrap_or(0.0),
            lora,
        },
        training,
        origin: None,
    };
    settings.check()?;
    config.validate(&model)?;
    notes.extend(note_on_dropout(settings, &model));
    let model = model.with_dropout(config.model.dropout);
    Ok(Resolved {
        config,
        model,
        notes,
    })
}
