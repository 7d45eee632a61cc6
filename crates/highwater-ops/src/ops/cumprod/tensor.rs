//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::CumProd;

impl Tensor {
    /// The running product along a dimension, as `torch.cumprod`. Products of whole numbers are of `I64`, and wrap
    /// around. There is no gradient of its gradient.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than floats, `I64`, `U8` and `Bool`; [`crate::Error::Usage`] for a
    /// dimension that is not there.
    #[track_caller]
    pub fn cumprod(&self, dim: impl Dim) -> Result<Self> {
        let dim = self.dim("cumprod", dim)?;
        Self::apply_one(CumProd { dim }, &[self])
    }
}
