//! The settings of a new run, or of a plan.

use highwater_memory::Files;
use highwater_models::data::Reads;

use super::checks::{self, check_held, check_task, no_effect};
use super::defaults::{HELD_OUT, LARGE, NANO, PICTURES, RECORDS, SMALL, TUNED_PICTURES};
use super::held_out::{check_alone, held_out_share};
use super::machine::machine;
use super::paths::absolute;
use super::training::{check_length, training};
use super::{model, optimizer};
use crate::args::{RunArgs, TrainArgs};
use crate::config::{DataConfig, ModelConfig, ModelSource, OutputConfig, RunConfig, Task};
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
    check_held(args, &model)?;
    let is_nano = matches!(&source, ModelSource::Preset(name) if NANO.contains(&name.as_str()));
    let records = match task {
        Task::TextGeneration => args.records.config(files, args.data.as_deref())?,
        Task::ImageClassification => None,
    };
    let defaults = match (task, &source) {
        (Task::TextGeneration, _) if is_nano => &SMALL,
        (Task::TextGeneration, _) if records.is_some() => &RECORDS,
        (Task::TextGeneration, _) => &LARGE,
        (Task::ImageClassification, source) if source.brings_weights() => &TUNED_PICTURES,
        (Task::ImageClassification, _) => &PICTURES,
    };
    check_length(args)?;
    let dropout = args.dropout.unwrap_or(0.0);
    let mut training = training(args, &model, defaults, records.is_some() && !is_nano);
    training.preference = args.preference.config(records.is_some())?;
    let held_out = match (&model, &args.data) {
        (Blueprint::Images(images), Some(data)) => {
            images.held_out(files, data, args.held_out, HELD_OUT)?
        }
        (Blueprint::Text(_), Some(_)) => held_out_share(files, args, records.is_some())?,
        (_, None) => {
            check_alone(args)?;
            args.held_out.unwrap_or(HELD_OUT)
        }
    };
    let config = RunConfig {
        version: RunConfig::VERSION,
        task,
        data: DataConfig {
            path: args.data.as_deref().map(absolute).transpose()?,
            eval_data: args.eval_data.as_deref().map(absolute).transpose()?,
            token_dtype: args.token_dtype,
            held_out,
            skip_bad: args.skip_bad.unwrap_or(false),
            order: args.order.unwrap_or(defaults.order),
            records,
            reads: Reads::default(),
        },
        optimizer: optimizer::optimizer(args, (&source, training.steps), defaults)?,
        machine: machine(args, is_nano)?,
        output: OutputConfig::default(),
        model: ModelConfig {
            tokenizer: match task {
                Task::TextGeneration => {
                    model::tokenizer(files, args.tokenizer.as_deref(), &source)?
                }
                Task::ImageClassification => None,
            },
            source,
            dropout,
            lora: args.lora.config(),
        },
        training,
        origin: None,
    };
    config.validate(&model)?;
    notes.extend(checks::notes(args, &model));
    let model = model.with_dropout(dropout);
    Ok(Resolved {
        config,
        model,
        notes,
    })
}
