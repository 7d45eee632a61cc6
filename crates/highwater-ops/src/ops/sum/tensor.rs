//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::{Mean, Sum};

impl Tensor {
    /// Sum of all elements; of truths and whole numbers their count or sum, in `I64`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float, `I64`, `U8` or `Bool`.
    #[track_caller]
    pub fn sum(&self) -> Result<Self> {
        Self::apply_one(Sum::default(), &[self])
    }

    /// Sum over some dimensions (all if none is given), as `torch.sum(dim, keepdim)`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a dimension that is not there, or is named twice.
    #[track_caller]
    pub fn sum_dims<D: Dim>(&self, dims: &[D], keepdim: bool) -> Result<Self> {
        let dims = self.dims_of("sum", dims)?.to_vec();
        Self::apply_one(Sum { dims, keepdim }, &[self])
    }

    /// Mean of all elements.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float.
    #[track_caller]
    pub fn mean(&self) -> Result<Self> {
        Self::apply_one(Mean::default(), &[self])
    }

    /// Mean over some dimensions (all if none is given), as `torch.mean(dim, keepdim)`.
    ///
    /// # Errors
    /// As [`Tensor::sum_dims`].
    #[track_caller]
    pub fn mean_dims<D: Dim>(&self, dims: &[D], keepdim: bool) -> Result<Self> {
        let dims = self.dims_of("mean", dims)?.to_vec();
        Self::apply_one(Mean { dims, keepdim }, &[self])
    }
}
