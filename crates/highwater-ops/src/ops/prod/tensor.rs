//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::Prod;

impl Tensor {
    /// The product of all elements, as `torch.prod(x)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than floats, `I64`, `U8` and `Bool`.
    #[track_caller]
    pub fn prod(&self) -> Result<Self> {
        let (dims, keepdim) = (Vec::new(), false);
        Self::apply_one(Prod { dims, keepdim }, &[self])
    }

    /// The product along a dimension, as `torch.prod(x, dim, keepdim)`.
    ///
    /// # Errors
    /// As [`Tensor::prod`]; [`crate::Error::Usage`] for a dimension that is not there.
    #[track_caller]
    pub fn prod_dim(&self, dim: impl Dim, keepdim: bool) -> Result<Self> {
        let dims = vec![self.dim("prod", dim)?];
        Self::apply_one(Prod { dims, keepdim }, &[self])
    }
}
