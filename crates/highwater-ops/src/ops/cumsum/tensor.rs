//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::CumSum;

impl Tensor {
    /// Running sums along a dimension, as `torch.cumsum`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than floats, `I64`, `U8` and `Bool`; [`crate::Error::Usage`] for a
    /// dimension that is not there.
    #[track_caller]
    pub fn cumsum(&self, dim: impl Dim) -> Result<Self> {
        let (dim, reverse) = (self.dim("cumsum", dim)?, false);
        Self::apply_one(CumSum { dim, reverse }, &[self])
    }
}
