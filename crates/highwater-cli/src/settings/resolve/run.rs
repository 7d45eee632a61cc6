//! The settings of a new run, or of a plan.

use highwater_memory::Files;

use super::checks::{check_quantize, check_task, no_effect, note_on_dropout};
use super::data::data;
use super::defaults::Defaults;
use super::machine::machine;
use super::model;
use super::optimizer::optimizer;
use super::training::{check_length, training};
use crate::args::{RunArgs, TrainArgs};
use crate::config::{ModelConfig, OutputConfig, RunConfig, Task};
use crate::data::held_out::check_use;
use crate::error::Failure;
use crate::model::Blueprint;

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

/// The settings that `train` was asked for.
///
/// # Errors
/// [`Failure`] for settings that are not possible.
pub fn train(files: &dyn Files, args: &TrainArgs) -> Result<Resolved, Failure> {
    let args = args.complete(files)?;
    let mut resolved = settled(files, &args.run)?;
    resolved.config.output.apply(&args.output);
    let task = resolved.config.task;
    if !task.is_text() && !resolved.config.output.sample.is_empty() {
        return Err(no_effect("sample", task));
    }
    resolved.config.validate(&resolved.model)?;
    check_use(files, &resolved.config)?;
    Ok(resolved)
}

/// The settings that `plan`, or `train` as far as it computes, was asked for.
///
/// # Errors
/// [`Failure`] for settings that are not possible.
pub fn run(files: &dyn Files, args: &RunArgs) -> Result<Resolved, Failure> {
    let args = TrainArgs {
        run: args.clone(),
        ..TrainArgs::default()
    };
    settled(files, &args.complete(files)?.run)
}

/// The settings that flags say, and no file.
fn settled(files: &dyn Files, args: &RunArgs) -> Result<Resolved, Failure> {
    let (source, model, mut notes) = model::model(files, args)?;
    let task = model.task();
    check_task(args, task)?;
    args.lora.check()?;
    check_quantize(args, &model)?;
    let records = match task {
        Task::TextGeneration => args.records.config(files, args.data.as_deref())?,
        Task::ImageClassification => None,
    };
    let defaults = Defaults::of(task, &source, records.is_some());
    check_length(args)?;
    let training = training(args, &model, defaults, records.is_some())?;
    let config = RunConfig {
        version: RunConfig::VERSION,
        task,
        data: data(files, args, &model, (records, defaults))?,
        optimizer: optimizer(args, (&source, training.steps), defaults)?,
        machine: machine(args, defaults)?,
        output: OutputConfig::default(),
        model: ModelConfig {
            tokenizer: match task {
                Task::TextGeneration => {
                    model::tokenizer(files, args.tokenizer.as_deref(), &source)?
                }
                Task::ImageClassification => None,
            },
            source,
            dropout: args.dropout.unwrap_or(0.0),
            lora: args.lora.config(),
        },
        training,
        origin: None,
    };
    config.validate(&model)?;
    notes.extend(note_on_dropout(args, &model));
    let model = model.with_dropout(config.model.dropout);
    Ok(Resolved {
        config,
        model,
        notes,
    })
}
