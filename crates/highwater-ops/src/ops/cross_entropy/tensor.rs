//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{CrossEntropy, Reduction};

impl Tensor {
    /// Mean negative log-likelihood of `labels` `[..]` under logits `[.., C]`; labels of
    /// `-100` do not count. As `torch.nn.functional.cross_entropy`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit; a label out of range stops the step.
    #[track_caller]
    pub fn cross_entropy(&self, labels: &Self) -> Result<Self> {
        let reduction = Reduction::Mean;
        Self::apply_one(
            CrossEntropy {
                reduction,
                ignore_index: -100,
            },
            &[self, labels],
        )
    }
}
