//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::Softmax;

impl Tensor {
    /// Softmax over the last dimension, as `torch.softmax(x, -1)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float.
    #[track_caller]
    pub fn softmax(&self) -> Result<Self> {
        self.softmax_dim(-1)
    }

    /// Softmax over a dimension, as `torch.softmax(x, dim)`.
    ///
    /// # Errors
    /// As [`Tensor::softmax`]; [`crate::Error::Usage`] for a dimension that is not there.
    #[track_caller]
    pub fn softmax_dim(&self, dim: impl Dim) -> Result<Self> {
        let dim = self.dim("softmax", dim)?;
        Self::apply_one(Softmax { dim }, &[self])
    }
}
