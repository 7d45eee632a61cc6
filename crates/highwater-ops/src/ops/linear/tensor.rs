//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Linear;

impl Tensor {
    /// `self · weightᵀ + bias`, as `torch.nn.functional.linear`: `[.., in]`, weight `[out, in]`, bias
    /// `[out]` to `[.., out]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> Result<Self> {
        match bias {
            Some(bias) => Self::apply_one(Linear { bias: true }, &[self, weight, bias]),
            None => Self::apply_one(Linear { bias: false }, &[self, weight]),
        }
    }
}
