//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::{Sort, TopK};

impl Tensor {
    /// The elements along a dimension in ascending or descending order, and their indices (I64) there, as
    /// `torch.sort(x, dim, descending, stable=True)`: equal elements stay in their order.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype other than floats, `I64`, `U8` and `Bool`; [`crate::Error::Usage`] for a
    /// dimension that is not there.
    #[track_caller]
    pub fn sort(&self, dim: impl Dim, descending: bool) -> Result<(Self, Self)> {
        let dim = self.dim("sort", dim)?;
        self.with_places(Sort { dim, descending })
    }

    /// The indices (I64) that sort a dimension, as `torch.argsort(x, dim, descending, stable=True)`.
    ///
    /// # Errors
    /// As [`Tensor::sort`].
    #[track_caller]
    pub fn argsort(&self, dim: impl Dim, descending: bool) -> Result<Self> {
        Ok(self.sort(dim, descending)?.1)
    }

    /// The `k` largest (or smallest) elements along a dimension, the most extreme first, and their indices
    /// (I64) there, as `torch.topk(x, k, dim, largest)`. Of equal elements the first is taken first.
    ///
    /// # Errors
    /// As [`Tensor::sort`]; [`crate::Error::Op`] for more elements than there are.
    #[track_caller]
    pub fn topk(&self, k: usize, dim: impl Dim, largest: bool) -> Result<(Self, Self)> {
        let dim = self.dim("topk", dim)?;
        self.with_places(TopK { k, dim, largest })
    }
}
