//! In which precision a run computes.

use clap::ValueEnum;
use highwater::DType;
use serde::{Deserialize, Serialize};

/// In which precision the forward part and the gradients of activations are computed. Parameters, their
/// gradients and moments are `f32`, and so are sums, losses and updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// All of it.
    #[default]
    F32,
    /// Products read and write `bf16`, as under `torch.autocast`.
    Bf16,
    /// Products read and write `fp16`, and the loss is scaled so that small gradients do not vanish.
    Fp16,
}

impl Precision {
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
