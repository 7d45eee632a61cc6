//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Dim, Result, Tensor};
use highwater_ops::{Scatter, ScatterReduce, ScatterReduction};

impl Tensor {
    /// With the elements of `source` written at indices (I64 or U32) along a dimension, as `torch.scatter`. Shapes
    /// are as in [`Tensor::scatter_add`], dtypes any, the same of both.
    ///
    /// Of several elements for one place the last counts, where PyTorch takes any; the gradient goes to that one
    /// alone, where PyTorch gives it to all of them.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[track_caller]
    pub fn scatter(&self, dim: impl Dim, index: &Self, source: &Self) -> Result<Self> {
        let dim = self.dim("scatter", dim)?;
        let base = self.as_large_as(index, dim, "scatter")?;
        let source = source.as_large_as(index, usize::MAX, "scatter")?;
        let written = Self::apply_one(Scatter { dim }, &[&source, index, &base])?;
        self.with_part(written)
    }

    /// With a number written at indices along a dimension, as `torch.scatter(x, dim, index, value)`.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[track_caller]
    pub fn scatter_value(&self, dim: impl Dim, index: &Self, value: f64) -> Result<Self> {
        let source = self.own_number(value)?.expand(index.dims())?;
        self.scatter(dim, index, &source)
    }

    /// With the elements of `source` joined at indices (I64 or U32) along a dimension to those that go to the same
    /// place and, with `include_self`, to what is there, as `torch.scatter_reduce`. Places that no index names keep
    /// what they have. Tensors are of one float dtype, shapes are as in [`Tensor::scatter_add`].
    ///
    /// Extrema share their gradient evenly among those that are equal to one.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[track_caller]
    pub fn scatter_reduce(
        &self,
        dim: impl Dim,
        index: &Self,
        source: &Self,
        reduction: ScatterReduction,
        include_self: bool,
    ) -> Result<Self> {
        let dim = self.dim("scatter_reduce", dim)?;
        if include_self && reduction == ScatterReduction::Sum {
            return self.scatter_add(dim, index, source);
        }
        let base = self.as_large_as(index, dim, "scatter_reduce")?;
        let source = source.as_large_as(index, usize::MAX, "scatter_reduce")?;
        let op = ScatterReduce {
            dim,
            reduction,
            include_self,
        };
        let joined = Self::apply_one(op, &[&source, index, &base])?;
        self.with_part(joined)
    }
}
