//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Gelu, GeluApproximate};

impl Tensor {
    /// Gaussian error linear unit, the exact form, as `torch.nn.functional.gelu`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than F32.
    #[track_caller]
    pub fn gelu(&self) -> Result<Self> {
        Self::apply_one(
            Gelu {
                approximate: GeluApproximate::None,
            },
            &[self],
        )
    }

    /// Gaussian error linear unit, the tanh form (`approximate="tanh"`), as GPT-2 has it.
    ///
    /// # Errors
    /// As [`Tensor::gelu`].
    #[track_caller]
    pub fn gelu_tanh(&self) -> Result<Self> {
        Self::apply_one(
            Gelu {
                approximate: GeluApproximate::Tanh,
            },
            &[self],
        )
    }
}
