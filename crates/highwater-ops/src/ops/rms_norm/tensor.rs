//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::RmsNorm;

impl Tensor {
    /// Root-mean-square normalisation over the last dimension (Zhang and Sennrich 2019), as
    /// `torch.nn.functional.rms_norm`: weight `[C]`, `eps` above 0. Computed in `f32`, rounded once.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn rms_norm(&self, weight: Option<&Self>, eps: f64) -> Result<Self> {
        let op = RmsNorm { eps };
        match weight {
            Some(weight) => Self::apply_one(op, &[self, weight]),
            None => Self::apply_one(op, &[self]),
        }
    }
}
