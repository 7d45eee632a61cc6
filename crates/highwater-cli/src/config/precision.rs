//! In which precision a run computes, and in which form weights and moments are held.

use clap::ValueEnum;
use highwater::{DType, optim};
use serde::{Deserialize, Serialize};

use super::error::SettingsError;
use super::range::require;

/// In which precision the forward part and the gradients of activations are computed. Sums, losses and updates
/// are `f32`, and so are parameters, their gradients and moments unless [`Master`] and [`Moments`] are asked
/// for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// bfloat16.
    Bf16,
    /// float16, with loss scaling.
    Fp16,
}

impl Precision {
    /// The name of the flag's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }

    /// What autocast is given.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::Fp16 => DType::F16,
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) fn is_whole(&self) -> bool {
        *self == Self::F32
    }
}

/// What the updates of weights in half precision are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Master {
    /// In 2 more bytes per weight: the bits that f32 has beyond bf16 (bf16 only).
    Split,
    /// In a copy of the weights in f32: 4 more bytes per weight.
    F32,
    /// Nowhere: updates are rounded stochastically (bf16 only).
    Stochastic,
}

impl Master {
    /// The name of the flag's value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::F32 => "f32",
            Self::Stochastic => "stochastic",
        }
    }

    /// What the optimizer is told.
    pub fn option(self) -> optim::Master {
        match self {
            Self::Split => optim::Master::Split,
            Self::F32 => optim::Master::F32,
            Self::Stochastic => optim::Master::Stochastic,
        }
    }

    /// Refuses a precision that has no such weights.
    pub(crate) fn check(self, precision: Precision) -> Result<(), SettingsError> {
        let (ok, expected) = match self {
            Self::F32 => (precision != Precision::F32, "bf16 or fp16"),
            Self::Split | Self::Stochastic => (precision == Precision::Bf16, "bf16"),
        };
        require(ok, "precision", &precision.name(), || {
            format!(
                "{expected}, to hold weights in, with --master {}",
                self.name()
            )
        })
    }
}

/// How the optimizer's moments are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Moments {
    /// 4 bytes per moment.
    #[default]
    F32,
    /// 1 byte per moment, with a scale for each block of 256.
    Int8,
}

impl Moments {
    /// What the optimizer is told.
    pub fn option(self) -> optim::Moments {
        match self {
            Self::F32 => optim::Moments::F32,
            Self::Int8 => optim::Moments::Int8,
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(super) fn is_whole(&self) -> bool {
        *self == Self::F32
    }
}
