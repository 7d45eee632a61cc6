//! The resolved settings of a run: `config.toml` in its folder.

mod data;
mod disk;
mod error;
mod lora;
mod machine;
mod model;
pub(crate) mod nearest;
mod optimizer;
mod origin;
mod output;
mod precision;
mod preference;
pub(crate) mod range;
mod records;
mod run_config;
mod schedule;
pub(crate) mod seal;
mod task;
mod training;

pub use data::DataConfig;
pub use disk::DiskConfig;
pub use error::SettingsError;
pub use lora::{LoraConfig, Quantize};
pub use machine::{Forbid, MachineConfig, Policy};
pub use model::{ModelConfig, ModelSource};
pub use optimizer::{Method, OptimizerConfig, OptimizerKind};
pub use origin::Origin;
pub use output::OutputConfig;
pub use precision::{Master, Moments, Precision};
pub use preference::{PreferenceConfig, PreferenceMethod};
pub use records::{LossOn, RecordsConfig};
pub use run_config::RunConfig;
pub use schedule::{LearningRate, Schedule};
pub use task::Task;
pub use training::{Epochs, TrainingConfig};
