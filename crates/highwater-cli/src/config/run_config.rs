//! The resolved settings of a run: `config.toml` in its folder.

use std::fmt;
use std::path::Path;

use highwater_memory::Files;
use highwater_memory::saved::write_atomic;
use highwater_models::data::BatchShape;
use serde::{Deserialize, Serialize};

use super::data::DataConfig;
use super::error::SettingsError;
use super::machine::MachineConfig;
use super::model::{ModelConfig, ModelSource};
use super::optimizer::OptimizerConfig;
use super::origin::Origin;
use super::output::OutputConfig;
use super::schedule::LearningRate;
use super::task::Task;
use super::training::TrainingConfig;
use super::{nearest, seal};

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
        let damaged = |problem: String| SettingsError::Damaged {
            path: path.to_owned(),
            problem,
        };
        let text = Self::text(files, path).map_err(|error| match error {
            SettingsError::Toml { problem, .. } => damaged(problem),
            error => error,
        })?;
        let sealed = seal::open(&text).map_err(|_| damaged("its hash is another".to_owned()))?;
        let config: Self = toml::from_str(sealed.unwrap_or(&text)).map_err(|error| {
            let problem = error.to_string();
            damaged(nearest::with_nearest(problem.trim_end()))
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

    /// That of a folder; `None` if there is no `config.toml` in it, so that it is no run's.
    ///
    /// # Errors
    /// As [`RunConfig::read`].
    pub(crate) fn of_folder(
        files: &dyn Files,
        folder: &Path,
    ) -> Result<Option<Self>, SettingsError> {
        let path = folder.join("config.toml");
        let is_run = files.metadata(&path)?.is_some();
        is_run.then(|| Self::read(files, &path)).transpose()
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
            return Err(failed(format!(
                "{bytes} bytes are too many for a settings file"
            )));
        }
        let mut text = vec![0; bytes as usize];
        file.read_exact_at(0, &mut text)?;
        String::from_utf8(text).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            failed(format!("not a text file: byte {} is not UTF-8", at + 1))
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

    /// Tokens or images that each step reads.
    pub fn tokens_per_step(&self) -> u64 {
        (self.batch_shape().tokens() * self.rows_together() * self.training.accumulate) as u64
    }

    /// Shortens a warmup that is longer than the run to a twentieth of the steps, and says so. While the length is
    /// stated in epochs, the data has yet to say how many steps those are.
    pub(crate) fn shorten_warmup(&mut self) -> Option<String> {
        let (steps, warmup) = (self.training.steps, &mut self.optimizer.warmup);
        let is_known = self.training.epochs.is_none();
        (is_known && *warmup > steps).then(|| {
            let old = std::mem::replace(warmup, steps / 20);
            format!("note: warmup is {warmup} steps instead of {old}, as the run has {steps}")
        })
    }

    /// How large batches are.
    pub fn batch_shape(&self) -> BatchShape {
        BatchShape {
            batch: self.training.batch,
            seq: self.training.seq,
        }
    }
}

fn other_version(version: impl fmt::Display) -> String {
    format!("format version {version}; this program reads version {VERSION}")
}
