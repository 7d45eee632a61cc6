//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::Any;

impl Tensor {
    /// Whether any element is other than 0 (`Bool`), as `torch.any(x)`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype whose elements have no addresses.
    #[track_caller]
    pub fn any(&self) -> Result<Self> {
        self.any_dims::<usize>(&[], false)
    }

    /// Whether any element over dimensions (all if none is given) is other than 0 (`Bool`), as
    /// `torch.any(x, dim, keepdim)`.
    ///
    /// # Errors
    /// As [`Tensor::any`]; [`crate::Error::Usage`] for a dimension that is not there, or is named twice.
    #[track_caller]
    pub fn any_dims<D: Dim>(&self, dims: &[D], keepdim: bool) -> Result<Self> {
        let (every, dims) = (false, self.dims_of("any", dims)?.to_vec());
        Self::apply_one(
            Any {
                every,
                dims,
                keepdim,
            },
            &[self],
        )
    }

    /// Whether every element is other than 0 (`Bool`), as `torch.all(x)`.
    ///
    /// # Errors
    /// As [`Tensor::any`].
    #[track_caller]
    pub fn all(&self) -> Result<Self> {
        self.all_dims::<usize>(&[], false)
    }

    /// Whether every element over dimensions (all if none is given) is other than 0 (`Bool`), as
    /// `torch.all(x, dim, keepdim)`.
    ///
    /// # Errors
    /// As [`Tensor::any_dims`].
    #[track_caller]
    pub fn all_dims<D: Dim>(&self, dims: &[D], keepdim: bool) -> Result<Self> {
        let (every, dims) = (true, self.dims_of("all", dims)?.to_vec());
        Self::apply_one(
            Any {
                every,
                dims,
                keepdim,
            },
            &[self],
        )
    }
}
