//! From flags to settings: defaults, and what depends on the model.

mod model;
mod optimizer;

use std::path::{Path, PathBuf};

use highwater_memory::{Bytes, Files, ProcessMemory};
use highwater_models::Order;
use highwater_models::data::Reads;

use crate::args::{ResumeArgs, RunArgs, TrainArgs};
use crate::config::{
    DataConfig, Epochs, MachineConfig, ModelConfig, ModelSource, RunConfig, SettingsError,
    TrainingConfig,
};
use crate::error::{Code, Failure};
use crate::run_dir::RunDir;
use crate::saving::OutputConfig;
use crate::task::{Blueprint, Task};
use crate::{held_out, moved};

/// The preset that is taken when nobody names a model.
pub const DEFAULT_MODEL: &str = "gpt2-nano";
/// The presets that are drawn anew and trained for a minute.
const NANO: [&str; 2] = [DEFAULT_MODEL, "llama-nano"];
/// The budget for them when nobody names one.
const DEFAULT_MEMORY: Bytes = Bytes(64 << 20);
/// What is taken of pictures when nobody names a model.
const DEFAULT_CLASSIFIER: &str = "resnet18";
/// Share of the built-in guide, and of pictures, that is held out.
const HELD_OUT: f64 = 0.1;

/// How often records are gone through when nobody says.
const RECORD_EPOCHS: f64 = 3.0;

/// What is taken where nobody says anything.
struct Defaults {
    steps: u64,
    batch: usize,
    seq: usize,
    order: Order,
    lr: f64,
    beta2: f64,
    weight_decay: f64,
}

/// For models drawn anew and trained for a minute: many small steps, and moments that follow
/// them.
const SMALL: Defaults = Defaults {
    steps: 800,
    batch: 4,
    seq: 64,
    order: Order::Shuffled,
    lr: 2e-3,
    beta2: 0.99,
    weight_decay: 0.1,
};
/// For models that bring weights, or take long to get some.
const LARGE: Defaults = Defaults {
    steps: 200,
    batch: 8,
    seq: 128,
    order: Order::Sequential,
    lr: 1e-4,
    beta2: 0.999,
    weight_decay: 0.01,
};

/// For models that bring weights and read records, which have an end each.
const RECORDS: Defaults = Defaults {
    batch: 4,
    seq: 1024,
    order: Order::Shuffled,
    ..LARGE
};

/// For classifiers of pictures that are drawn anew.
const PICTURES: Defaults = Defaults {
    order: Order::Shuffled,
    lr: 1e-3,
    ..LARGE
};
/// For those that bring weights.
const TUNED_PICTURES: Defaults = Defaults {
    lr: 1e-4,
    ..PICTURES
};

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

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Files(error) => error.into(),
            error @ SettingsError::Damaged { .. } => Self::new(Code::Files, error)
                .id("HW1031")
                .hint("restore a copy of it, or start a new run with `highwater train`"),
            error @ SettingsError::Range { .. } => Self::new(Code::Usage, error).id("HW1030"),
            error => Self::new(Code::Usage, error).id("HW1031"),
        }
    }
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
    held_out::check_use(files, &resolved.config)?;
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
        (Blueprint::Text(_), Some(_)) => held_out::share(files, args, records.is_some())?,
        (_, None) => {
            held_out::check_alone(args)?;
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
    notes.extend(self::notes(args, &model));
    let model = model.with_dropout(dropout);
    Ok(Resolved {
        config,
        model,
        notes,
    })
}

fn machine(args: &RunArgs, is_nano: bool) -> Result<MachineConfig, Failure> {
    Ok(MachineConfig {
        memory: memory(args.memory, is_nano)?,
        policy: args.policy.unwrap_or(crate::config::Policy::Auto),
        threads: args.threads.unwrap_or_else(cores),
        device_memory: args.device_memory,
        host_memory: args.host_memory,
        disk: args.disk.clone(),
        forbid: args.forbid.clone().unwrap_or_default(),
        rates: highwater::Rates::default(),
    })
}

/// How long and how a run trains: by default `in_epochs`, or in steps.
fn training(
    args: &RunArgs,
    model: &Blueprint,
    defaults: &Defaults,
    in_epochs: bool,
) -> TrainingConfig {
    let of_records = (in_epochs && args.steps.is_none()).then_some(RECORD_EPOCHS);
    let epochs = args.epochs.or(of_records);
    TrainingConfig {
        steps: args.steps.unwrap_or(defaults.steps),
        epochs: epochs.map(|count| Epochs {
            count,
            warmup_is_said: args.warmup.is_some(),
        }),
        batch: args.batch.unwrap_or(defaults.batch),
        seq: args.seq.unwrap_or(model.max_length().min(defaults.seq)),
        size: match model {
            Blueprint::Text(_) => None,
            Blueprint::Images(classifier) => Some(classifier.size),
        },
        accumulate: args.accumulate.unwrap_or(1),
        precision: args.precision.unwrap_or_default(),
        seed: args.seed.unwrap_or(0),
        label_smoothing: args.preference.cross_entropy_smoothing(),
        preference: None,
    }
}

/// That a run's length is said once.
fn check_length(args: &RunArgs) -> Result<(), Failure> {
    let Some(epochs) = args.epochs else {
        return Ok(());
    };
    if args.steps.is_some() {
        let message = "--steps and --epochs both say how long the run is";
        return Err(Failure::usage(message).hint("leave one of them out"));
    }
    check_epochs(Some(epochs))
}

fn check_epochs(epochs: Option<f64>) -> Result<(), Failure> {
    match epochs {
        Some(epochs) if !(epochs > 0.0 && epochs <= 1e6) => {
            let message = format!("`epochs` is {epochs}, must be above 0 and at most 1000000");
            Err(Failure::usage(message))
        }
        _ => Ok(()),
    }
}

/// What people may not expect of these settings.
fn notes(args: &RunArgs, model: &Blueprint) -> Vec<String> {
    let mut notes = Vec::new();
    let most = model.dropout();
    if args.dropout.is_none() && most > 0.0 {
        notes.push(format!(
            "note: the model was made for dropout ({most}), and this trains without: \
             --dropout {most} trains with it"
        ));
    }
    notes
}

/// The settings of the run in a folder, with what `resume` was asked to change about them.
///
/// # Errors
/// [`Failure`] for settings that cannot be read or are not possible.
pub fn resume(files: &dyn Files, dir: &RunDir, args: &ResumeArgs) -> Result<Resolved, Failure> {
    let mut config = RunConfig::read(files, &dir.config())?;
    if let Some(origin) = &config.origin {
        origin.check_model(files, dir)?;
    }
    let model = Blueprint::read(files, &dir.model())?;
    moved::find(&mut config, args)?;
    moved::check(files, &config, dir.path())?;
    check_epochs(args.epochs)?;
    let RunConfig {
        machine,
        training,
        output,
        ..
    } = &mut config;
    machine.memory = args.memory.unwrap_or(machine.memory);
    machine.device_memory = args.device_memory.or(machine.device_memory);
    machine.host_memory = args.host_memory.or(machine.host_memory);
    if args.no_host_memory {
        (machine.device_memory, machine.host_memory) = (None, None);
    }
    machine.threads = args.threads.unwrap_or(machine.threads);
    if args.disk.is_some() || args.no_disk {
        machine.disk.clone_from(&args.disk);
    }
    training.steps = args.steps.unwrap_or(training.steps);
    training.epochs = args.epochs.map(|count| Epochs {
        count,
        warmup_is_said: true,
    });
    output.apply(&args.output);
    config.validate(&model)?;
    Ok(Resolved {
        config,
        model,
        notes: Vec::new(),
    })
}

/// That the model is for the task that was named, and no flag is for the other.
fn check_task(args: &RunArgs, task: Task) -> Result<(), Failure> {
    if let Some(named) = args.task.filter(|&named| named != task) {
        let model = args.model.as_deref().unwrap_or(DEFAULT_MODEL);
        let message = format!(
            "{model} is a model for {}, not for {}",
            task.name(),
            named.name()
        );
        return Err(Failure::usage(message).hint("leave out --task, or name another --model"));
    }
    let foreign = match task {
        Task::TextGeneration => vec![
            ("size", args.size.is_some()),
            ("skip-bad", args.skip_bad == Some(true)),
        ],
        Task::ImageClassification => vec![
            ("seq", args.seq.is_some()),
            ("tokenizer", args.tokenizer.is_some()),
            ("token-dtype", args.token_dtype.is_some()),
            ("eval-data", args.eval_data.is_some()),
            ("dropout", args.dropout.is_some_and(|dropout| dropout > 0.0)),
            ("lora", args.lora.lora.is_some()),
            ("chat-template", args.records.chat_template.is_some()),
            ("loss-on", args.records.loss_on.is_some()),
            ("no-packing", args.records.no_packing == Some(true)),
            ("map", args.records.map.is_some()),
            ("preference", args.preference.preference.is_some()),
        ],
    };
    match foreign.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(no_effect(flag, task)),
    }
}

fn no_effect(flag: &str, task: Task) -> Failure {
    let message = format!("--{flag} has no effect on {}", task.name());
    Failure::usage(message).hint("leave it out")
}

/// That weights that are to be held in few bits can be.
fn check_held(args: &RunArgs, model: &Blueprint) -> Result<(), Failure> {
    match model {
        Blueprint::Text(text) if args.lora.quantize.is_some() && !text.can_be_held() => {
            let message = "--quantize: weights of this family cannot be quantized";
            Err(Failure::usage(message)
                .id("HW1041")
                .hint("leave it out, or take another model"))
        }
        _ => Ok(()),
    }
}

/// The budget that was given, or a default: for a nano preset a small one, otherwise most of
/// what the process may have.
fn memory(given: Option<Bytes>, is_nano: bool) -> Result<Bytes, Failure> {
    if let Some(memory) = given.or(is_nano.then_some(DEFAULT_MEMORY)) {
        if memory < Bytes::MIB {
            let message = format!("--memory {memory} is less than any program needs");
            return Err(Failure::usage(message).hint("a size has a unit, such as --memory 2GiB"));
        }
        return Ok(memory);
    }
    let machine = ProcessMemory::read().map_err(|error| {
        Failure::new(Code::Files, error).hint("say --memory SIZE, such as --memory 3GiB")
    })?;
    Ok(Bytes(machine.bound() / 10 * 9))
}

/// Settings outlive the folder that the program was started in.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::usage(format!("the path `{}`: {error}", path.display())))
}

/// As many threads as the machine runs at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
