//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::LayerNorm;

impl Tensor {
    /// Layer normalisation over the last dimension (Ba et al. 2016), as
    /// `torch.nn.functional.layer_norm`: weight and bias `[C]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit.
    #[track_caller]
    pub fn layer_norm(&self, affine: Option<(&Self, &Self)>, eps: f64) -> Result<Self> {
        match affine {
            Some((weight, bias)) => {
                let op = LayerNorm { eps, affine: true };
                Self::apply_one(op, &[self, weight, bias])
            }
            None => Self::apply_one(LayerNorm { eps, affine: false }, &[self]),
        }
    }
}
