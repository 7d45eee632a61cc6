//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::Norm;

impl Tensor {
    /// `(sum |x|^p)^(1/p)` of all elements, as `torch.linalg.vector_norm(x, p)`: `p` is 2 for the length,
    /// [`f64::INFINITY`] for the largest absolute value.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float.
    #[track_caller]
    pub fn norm(&self, p: f64) -> Result<Self> {
        self.norm_dims::<usize>(p, &[], false)
    }

    /// [`Tensor::norm`] over dimensions (all if none is given), as
    /// `torch.linalg.vector_norm(x, p, dim, keepdim)`.
    ///
    /// # Errors
    /// As [`Tensor::norm`]; [`crate::Error::Usage`] for a dimension that is not there, or is named twice.
    #[track_caller]
    pub fn norm_dims<D: Dim>(&self, p: f64, dims: &[D], keepdim: bool) -> Result<Self> {
        let dims = self.dims_of("norm", dims)?.to_vec();
        Self::apply_one(Norm { p, dims, keepdim }, &[self])
    }
}
