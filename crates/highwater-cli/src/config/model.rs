//! Which model a run trains.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::lora::LoraConfig;

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

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(name) => f.write_str(name),
            Self::Folder(path) | Self::Config(path) => path.display().fmt(f),
        }
    }
}
