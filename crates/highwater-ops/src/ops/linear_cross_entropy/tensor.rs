//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{LinearCrossEntropy, default_chunk_rows};

impl Tensor {
    /// `linear(self, weight)` and `cross_entropy` in one, in chunks of rows, so that the logits are
    /// never held: `self` `[.., C]`, weight `[V, C]`, labels `[..]`. Their gradients are made in the
    /// same pass.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`].
    #[track_caller]
    pub fn linear_cross_entropy(&self, weight: &Self, labels: &Self) -> Result<Self> {
        let rows = labels.shape().numel();
        let vocabulary = weight.dims().first().copied().unwrap_or(1);
        let enabled = crate::is_grad_enabled();
        let grad_x = enabled && self.requires_grad()?;
        let grad_w = enabled && weight.requires_grad()?;
        let chunk_rows = default_chunk_rows(rows, vocabulary);
        let op = LinearCrossEntropy {
            chunk_rows,
            grad_x,
            grad_w,
            ignore_index: -100,
        };
        Self::apply_one(op, &[self, weight, labels])
    }
}
