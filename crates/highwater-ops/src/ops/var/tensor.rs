//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::Var;

impl Tensor {
    /// The variance of all elements, over their number less 1, as `torch.var(x)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float.
    #[track_caller]
    pub fn var(&self) -> Result<Self> {
        self.var_dims::<usize>(&[], 1.0, false)
    }

    /// The variance over dimensions (all if none is given), over their number less `correction`, as
    /// `torch.var(x, dim, correction=.., keepdim=..)`.
    ///
    /// # Errors
    /// As [`Tensor::var`]; [`crate::Error::Usage`] for a dimension that is not there, or is named twice.
    #[track_caller]
    pub fn var_dims<D: Dim>(&self, dims: &[D], correction: f64, keepdim: bool) -> Result<Self> {
        let (root, dims) = (false, self.dims_of("var", dims)?.to_vec());
        let op = Var {
            root,
            correction,
            dims,
            keepdim,
        };
        Self::apply_one(op, &[self])
    }

    /// The standard deviation of all elements, as `torch.std(x)`: the root of [`Tensor::var`]. Its gradient
    /// is 0 where it is 0.
    ///
    /// # Errors
    /// As [`Tensor::var`].
    #[track_caller]
    pub fn std(&self) -> Result<Self> {
        self.std_dims::<usize>(&[], 1.0, false)
    }

    /// The standard deviation over dimensions (all if none is given), as
    /// `torch.std(x, dim, correction=.., keepdim=..)`.
    ///
    /// # Errors
    /// As [`Tensor::var_dims`].
    #[track_caller]
    pub fn std_dims<D: Dim>(&self, dims: &[D], correction: f64, keepdim: bool) -> Result<Self> {
        let (root, dims) = (true, self.dims_of("std", dims)?.to_vec());
        let op = Var {
            root,
            correction,
            dims,
            keepdim,
        };
        Self::apply_one(op, &[self])
    }
}
