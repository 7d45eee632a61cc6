//! The resolved settings of a run: `config.toml` in its folder.

mod data;
mod disk;
mod optimizer;
mod precision;
mod range;

pub use data::DataConfig;
pub use disk::DiskConfig;
pub use optimizer::{Method, OptimizerConfig, OptimizerKind};
pub use precision::{Master, Moments, Precision};

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use highwater::Rates;
use highwater_memory::saved::write_atomic;
use highwater_memory::{Bytes, Files, FilesError};
use highwater_models::data::BatchShape;
use serde::{Deserialize, Serialize};

use crate::from_config;
use crate::lora::LoraConfig;
use crate::origin::Origin;
use crate::preference::PreferenceConfig;
use crate::saving::OutputConfig;
use crate::schedule::LearningRate;
use crate::seal;
use crate::task::{Blueprint, Task};
use range::{count, fraction, most, side};
pub(crate) use range::{positive, require};

/// The version of the file's format.
const VERSION: u32 = 2;
/// The one before: not sealed, and without what the run began with.
const UNSEALED: u32 = 1;
/// The largest file that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Everything that a run was asked to do. What is not here does not influence the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Version of this file's format.
    pub version: u32,
    /// What the model learns to do.
    #[serde(default, skip_serializing_if = "Task::is_text")]
    pub task: Task,
    /// Which model.
    pub model: ModelConfig,
    /// On which data.
    pub data: DataConfig,
    /// How long and in which portions.
    pub training: TrainingConfig,
    /// How the parameters change.
    pub optimizer: OptimizerConfig,
    /// With which means.
    pub machine: MachineConfig,
    /// What is kept of it.
    pub output: OutputConfig,
    /// What it began with; none before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Which model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// A preset's name or a model folder.
    pub source: ModelSource,
    /// Probability of dropout.
    pub dropout: f64,
    /// Adapters beside a frozen model; without them all of it trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// The `tokenizer.json`; bytes without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
}

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelSource {
    /// A preset, with weights drawn anew.
    Preset(String),
    /// A Hugging Face model folder, with its weights.
    Folder(PathBuf),
    /// A `config.json` as Hugging Face has them, with weights drawn anew.
    Config(PathBuf),
}

impl ModelSource {
    /// Whether there are weights to go on from.
    pub fn brings_weights(&self) -> bool {
        matches!(self, Self::Folder(_))
    }
}

/// How often a run goes through its data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epochs {
    /// So often.
    pub count: f64,
    /// Whether it was said in how many steps the learning rate rises; a twentieth of them if not.
    pub warmup_is_said: bool,
}

/// How long and in which portions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Steps of the optimizer.
    pub steps: u64,
    /// How often the data was said to be gone through instead, until it is known how many steps that are.
    #[serde(skip)]
    pub epochs: Option<Epochs>,
    /// Sequences or pictures in a batch.
    pub batch: usize,
    /// Tokens in a sequence; 1 of pictures.
    pub seq: usize,
    /// Side of pictures, in pixels; none of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Batches of one step.
    pub accumulate: usize,
    /// In which precision products are computed.
    #[serde(default, skip_serializing_if = "Precision::is_whole")]
    pub precision: Precision,
    /// Seed of weights, dropout and order.
    pub seed: u64,
    /// The share of each target's probability that all tokens or classes have alike; none of pairs of answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f64>,
    /// How pairs of answers are learnt from; none of other data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceConfig>,
}

/// With which means. Changes nothing about the numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    /// Bytes for the whole process.
    pub memory: Bytes,
    /// What may be recomputed.
    pub policy: Policy,
    /// Threads to compute with.
    pub threads: usize,
    /// Bytes of that for what kernels work in; what is left without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<Bytes>,
    /// Bytes of that for tensors to wait in besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<Bytes>,
    /// Where tensors may wait beside memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskConfig>,
    /// What the run does without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbid: Vec<Forbid>,
    /// What the machine does in a second: found when a run starts or is planned, and no setting.
    #[serde(skip)]
    pub rates: Rates,
}

/// What a run may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forbid {
    /// Writing to the disk while training: what is trained stays in memory.
    DiskWrites,
}

/// What may be recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// What has to be, to keep to the budget at the least cost.
    Auto,
    /// Nothing.
    Keep,
    /// Whatever can be.
    Recompute,
}

/// What can be wrong with the settings of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The file is not what this program writes.
    #[error("{}: {problem}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        problem: String,
    },
    /// The file is not what was written there.
    #[error("{}: damaged, or changed by hand: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What tells.
        problem: String,
    },
    /// A setting out of range.
    #[error("`{setting}` is {value}; expected {expected}")]
    Range {
        /// Its name, as a flag without the dashes.
        setting: &'static str,
        /// What was given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(name) => f.write_str(name),
            Self::Folder(path) | Self::Config(path) => path.display().fmt(f),
        }
    }
}

impl RunConfig {
    /// The version that this program writes.
    pub const VERSION: u32 = VERSION;

    /// Whether a run reads the weights that it began with each time it goes on.
    pub(crate) fn needs_base(&self) -> bool {
        let has_adapters = self.model.lora.is_some();
        let preference = self.training.preference;
        has_adapters || preference.is_some_and(|how| how.needs_copy(has_adapters))
    }

    /// The model's folder, where weights of it are no more than read: where memory is short they wait in its files.
    pub(crate) fn base(&self) -> Option<&Path> {
        match &self.model.source {
            ModelSource::Folder(folder) if self.needs_base() => Some(folder),
            _ => None,
        }
    }

    /// Whether tensors may wait below the memory that kernels work in.
    pub(crate) fn has_tiers(&self) -> bool {
        self.machine.disk.is_some() || self.machine.host_memory.is_some() || self.base().is_some()
    }

    /// The chat template that was named.
    pub(crate) fn chat_template(&self) -> Option<&str> {
        self.data.records.as_ref()?.chat_template.as_deref()
    }

    /// Rows of records that stay together: the two answers of a pair.
    pub(crate) fn rows_together(&self) -> usize {
        1 + usize::from(self.training.preference.is_some())
    }

    /// Whether the batches of a step count differently, by what is learnt of each.
    pub(crate) fn counts_differ(&self) -> bool {
        self.data.records.is_some() && self.training.preference.is_none()
    }

    /// Whether a step is of several plans, between which cells may move.
    pub(crate) fn moves_between_plans(&self) -> bool {
        self.training.accumulate > 1 && self.has_tiers()
    }

    /// Reads the `config.toml` of a run, which must be as it was written. Unknown keys are errors.
    ///
    /// # Errors
    /// [`SettingsError`], with line and column.
    pub fn read(files: &dyn Files, path: &Path) -> Result<Self, SettingsError> {
        let text = Self::text(files, path)?;
        let damaged = |problem: String| SettingsError::Damaged {
            path: path.to_owned(),
            problem,
        };
        let sealed = seal::open(&text).map_err(|_| damaged("its hash is another".to_owned()))?;
        let config: Self = toml::from_str(sealed.unwrap_or(&text)).map_err(|error| {
            let problem = error.to_string();
            damaged(from_config::with_nearest(problem.trim_end()))
        })?;
        match (config.version, sealed) {
            (VERSION, Some(_)) | (UNSEALED, None) => Ok(config),
            (VERSION | UNSEALED, _) => Err(damaged("its hash is missing".to_owned())),
            (version, _) => Err(SettingsError::Toml {
                path: path.to_owned(),
                problem: other_version(version),
            }),
        }
    }

    /// The text of a file of settings.
    pub(crate) fn text(files: &dyn Files, path: &Path) -> Result<String, SettingsError> {
        let mut file = files.open(path)?;
        let bytes = file.bytes();
        let failed = |problem: String| SettingsError::Toml {
            path: path.to_owned(),
            problem,
        };
        if bytes > BYTES_MAX {
            return Err(failed(format!("{bytes} bytes are no settings")));
        }
        let mut text = vec![0; bytes as usize];
        file.read_exact_at(0, &mut text)?;
        String::from_utf8(text).map_err(|error| SettingsError::Damaged {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    }

    /// That this program reads files of a version; none is this one's.
    pub(crate) fn check_version(version: Option<&toml::Value>) -> Result<(), String> {
        let known = [VERSION, UNSEALED].map(i64::from);
        match version {
            None => Ok(()),
            Some(toml::Value::Integer(version)) if known.contains(version) => Ok(()),
            Some(version) => Err(other_version(version)),
        }
    }

    /// The file's text.
    ///
    /// # Errors
    /// A number that TOML does not have, or a path that is no UTF-8.
    pub fn to_toml(&self, path: &Path) -> Result<String, SettingsError> {
        toml::to_string(self).map_err(|error| SettingsError::Toml {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    }

    /// Writes a `config.toml`, all of it or nothing.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&self, files: &dyn Files, path: &Path) -> Result<(), SettingsError> {
        let written = Self {
            version: VERSION,
            ..self.clone()
        };
        let text = seal::seal(&written.to_toml(path)?);
        Ok(write_atomic(files, path, text.as_bytes())?)
    }

    /// The learning rate of each step.
    pub fn learning_rate(&self) -> LearningRate {
        LearningRate {
            peak: self.optimizer.lr,
            warmup: self.optimizer.warmup,
            steps: self.training.steps,
            schedule: self.optimizer.schedule,
        }
    }

    /// The most tokens that its model learns to look back on: weights that a run draws anew know no
    /// further positions than those of its sequences.
    pub fn context(&self) -> usize {
        if self.model.source.brings_weights() {
            usize::MAX
        } else {
            self.training.seq
        }
    }

    /// Tokens or pictures that each step reads.
    pub fn tokens_per_step(&self) -> u64 {
        (self.batch_shape().tokens() * self.rows_together() * self.training.accumulate) as u64
    }

    /// How large batches are.
    pub fn batch_shape(&self) -> BatchShape {
        BatchShape {
            batch: self.training.batch,
            seq: self.training.seq,
        }
    }
}

impl RunConfig {
    /// Checks each setting's range, and those that depend on the model.
    ///
    /// # Errors
    /// [`SettingsError::Range`] for the first at fault.
    pub fn validate(&self, model: &Blueprint) -> Result<(), SettingsError> {
        let (training, output) = (&self.training, &self.output);
        most("steps", training.steps, 1_000_000_000)?;
        count("batch", training.batch as u64, 1 << 16)?;
        count("accumulate", training.accumulate as u64, 1 << 16)?;
        count("threads", self.machine.threads as u64, 1024)?;
        self.validate_memory()?;
        count("save-every", output.save_every, u64::MAX)?;
        count("keep", output.keep as u64, u64::MAX)?;
        count("eval-every", output.eval_every.unwrap_or(1), u64::MAX)?;
        let is_told = |text: &String| !text.is_empty() && self.task.is_text();
        for text in &output.sample {
            require(is_told(text), "sample", &format!("{text:?}"), || {
                "a text of at least one letter, for a model of texts".to_owned()
            })?;
        }
        training.size.map_or(Ok(()), side)?;
        let positions = model.max_length() as u64;
        require(
            (1..=positions).contains(&(training.seq as u64)),
            "seq",
            &training.seq,
            || match model.max_length_field() {
                Some(field) => format!("1 to {positions}, the model's {field}"),
                None => format!("1 to {positions}"),
            },
        )?;
        // TOML has no larger numbers.
        most("seed", training.seed, i64::MAX as u64)?;
        fraction("dropout", self.model.dropout)?;
        self.model
            .lora
            .as_ref()
            .map_or(Ok(()), LoraConfig::validate)?;
        let preference = training.preference.as_ref();
        preference.map_or(Ok(()), PreferenceConfig::validate)?;
        if let Some(share) = training.label_smoothing {
            let ok = (0.0..=1.0).contains(&share);
            require(ok, "label-smoothing", &share, || {
                "a number from 0 to 1".to_owned()
            })?;
        }
        fraction("held-out", self.data.held_out)?;
        self.validate_optimizer()
    }

    fn validate_memory(&self) -> Result<(), SettingsError> {
        let machine = &self.machine;
        let parts = [
            ("device-memory", machine.device_memory),
            ("host-memory", machine.host_memory),
        ];
        let mut together = 0_u64;
        for (setting, bytes) in parts {
            if let Some(bytes) = bytes {
                require(bytes > Bytes(0), setting, &bytes, || {
                    "at least one byte".to_owned()
                })?;
                together = together.saturating_add(bytes.0);
            }
        }
        require(
            machine.memory.0 > together,
            "memory",
            &machine.memory,
            || {
                let together = Bytes(together);
                format!("more than {together}, what device-memory and host-memory are together")
            },
        )
    }

    fn validate_optimizer(&self) -> Result<(), SettingsError> {
        let optimizer = &self.optimizer;
        positive("lr", optimizer.lr, 100.0)?;
        let steps = self.training.steps;
        require(
            optimizer.warmup <= steps || self.training.epochs.is_some(),
            "warmup",
            &optimizer.warmup,
            || format!("at most {steps}, the number of steps"),
        )?;
        if let Some(master) = optimizer.master {
            master.check(self.training.precision)?;
        }
        let decay = optimizer.weight_decay;
        require(
            (0.0..=100.0).contains(&decay),
            "weight-decay",
            &decay,
            || "a number from 0 to 100".to_owned(),
        )?;
        if let Some(clip) = optimizer.clip {
            let is_good = clip > 0.0 && clip < f64::INFINITY;
            require(is_good, "clip", &clip, || {
                "a number from 0 up (0 turns clipping off)".to_owned()
            })?;
        }
        match optimizer.method {
            Method::Adamw { beta1, beta2, eps } => {
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
                positive("eps", eps, 1.0)
            }
            Method::Sgd { momentum } => fraction("momentum", momentum),
        }
    }
}

fn other_version(version: impl fmt::Display) -> String {
    format!("format version {version}; this program reads version {VERSION}")
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
