//! The adapters of a run.

use clap::ValueEnum;
use highwater::nn::LoraOptions;
use highwater::op::WeightFormat;
use serde::{Deserialize, Serialize};

/// How frozen weights are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantize {
    /// 4-bit NormalFloat in blocks of 64: 4.5 bits per weight.
    Nf4,
    /// 8-bit integers in blocks of 64: 8.5 bits per weight.
    Int8,
}

impl Quantize {
    /// As the library has it.
    pub fn format(self) -> WeightFormat {
        match self {
            Self::Nf4 => WeightFormat::Nf4,
            Self::Int8 => WeightFormat::Int8,
        }
    }
}

/// Adapters of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Their rank.
    pub rank: usize,
    /// What they answer is multiplied by this over the rank.
    pub alpha: f64,
    /// Dropout of what they read.
    pub dropout: f64,
    /// The layers that have one.
    pub targets: Vec<String>,
    /// Whether the root of the rank is meant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rs: bool,
    /// Whether the lengths of rows train by themselves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dora: bool,
    /// How the frozen weights are held, if not as floats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantize: Option<Quantize>,
}

impl LoraConfig {
    /// As the library has them.
    pub fn options(&self) -> LoraOptions {
        LoraOptions {
            r: self.rank,
            lora_alpha: self.alpha,
            lora_dropout: self.dropout,
            target_modules: self.targets.clone(),
            use_rslora: self.rs,
            use_dora: self.dora,
        }
    }
}
