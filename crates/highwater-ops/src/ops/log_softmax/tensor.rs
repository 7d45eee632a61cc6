//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::LogSoftmax;

impl Tensor {
    /// The logarithm of softmax over a dimension, as `torch.log_softmax(x, dim)`: more precise than the two
    /// one after the other, and in one pass.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float; [`crate::Error::Usage`] for a dimension that is
    /// not there.
    #[track_caller]
    pub fn log_softmax(&self, dim: impl Dim) -> Result<Self> {
        let dim = self.dim("log_softmax", dim)?;
        Self::apply_one(LogSoftmax { dim }, &[self])
    }
}
