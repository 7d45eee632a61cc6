//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Mean, Sum};

impl Tensor {
    /// Sum of all elements.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than F32.
    #[track_caller]
    pub fn sum(&self) -> Result<Self> {
        self.sum_dims(&[], false)
    }

    /// Sum over some dimensions (all if none is given), as `torch.sum(dim, keepdim)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dimension that is not there.
    #[track_caller]
    pub fn sum_dims(&self, dims: &[usize], keepdim: bool) -> Result<Self> {
        Self::apply_one(
            Sum {
                dims: dims.into(),
                keepdim,
            },
            &[self],
        )
    }

    /// Mean of all elements.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    #[track_caller]
    pub fn mean(&self) -> Result<Self> {
        self.mean_dims(&[], false)
    }

    /// Mean over some dimensions (all if none is given), as `torch.mean(dim, keepdim)`.
    ///
    /// # Errors
    /// As [`Tensor::sum_dims`].
    #[track_caller]
    pub fn mean_dims(&self, dims: &[usize], keepdim: bool) -> Result<Self> {
        Self::apply_one(
            Mean {
                dims: dims.into(),
                keepdim,
            },
            &[self],
        )
    }
}
