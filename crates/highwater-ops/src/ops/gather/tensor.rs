//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::error::usage_error;
use crate::{Dim, Location, Result, Tensor};
use highwater_ops::{Gather, ScatterAdd};
use smallvec::SmallVec;

impl Tensor {
    /// Elements by index (I64 or U32) along a dimension, as `torch.gather`: the result has the index's
    /// shape, which in other dimensions may be the smaller one.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] or [`crate::Error::Op`] if dimension, shapes or dtypes do not fit; an index
    /// out of range stops the step that computes it.
    #[track_caller]
    pub fn gather(&self, dim: impl Dim, index: &Self) -> Result<Self> {
        let dim = self.dim("gather", dim)?;
        let seen = self.as_large_as(index, dim, "gather")?;
        Self::apply_one(Gather { dim }, &[&seen, index])
    }

    /// As [`Tensor::gather`], where tensor and index broadcast in other dimensions, as
    /// `torch.take_along_dim`.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[track_caller]
    pub fn take_along_dim(&self, index: &Self, dim: impl Dim) -> Result<Self> {
        let dim = self.dim("take_along_dim", dim)?;
        if self.shape().rank() != index.shape().rank() {
            let (own, index) = (self.shape(), index.shape());
            let message = format!("take_along_dim: an index {index} does not broadcast with {own}");
            return Err(usage_error(message, Location::caller()));
        }
        let mut shapes =
            [self, index].map(|tensor| SmallVec::<[usize; 8]>::from_slice(tensor.dims()));
        for other in (0..self.shape().rank()).filter(|&other| other != dim) {
            let (a, b) = (shapes[0][other], shapes[1][other]);
            let both = if a == 1 { b } else { a };
            for shape in &mut shapes {
                shape[other] = both;
            }
        }
        let [own, others] = shapes;
        self.expand(&own[..])?
            .gather(dim, &index.expand(&others[..])?)
    }

    /// What stands at these indices (a vector of I64 or U32, or one of them) of a dimension, in their order,
    /// as `torch.index_select`.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[track_caller]
    pub fn index_select(&self, dim: impl Dim, index: &Self) -> Result<Self> {
        let dim = self.dim("index_select", dim)?;
        let index = self.repeated(index, dim, "index_select")?;
        self.gather(dim, &index)
    }

    /// With the elements of `source` added at indices (I64 or U32) along a dimension, in the order in
    /// which they stand there, as `torch.scatter_add`. In other dimensions the index may be smaller than
    /// the tensor, and in all than the source, whose other elements do not count.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[track_caller]
    pub fn scatter_add(&self, dim: impl Dim, index: &Self, source: &Self) -> Result<Self> {
        let dim = self.dim("scatter_add", dim)?;
        let base = self.as_large_as(index, dim, "scatter_add")?;
        let source = source.as_large_as(index, usize::MAX, "scatter_add")?;
        let op = ScatterAdd {
            dim,
            extent: base.dims().get(dim).copied().unwrap_or(1),
            accumulate: true,
        };
        let sum = Self::apply_one(op, &[&source, index, &base])?;
        self.with_part(sum)
    }

    /// With what stands in `source` along a dimension added at these indices (a vector of I64 or U32), in
    /// their order, as `torch.index_add`.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[track_caller]
    pub fn index_add(&self, dim: impl Dim, index: &Self, source: &Self) -> Result<Self> {
        let dim = self.dim("index_add", dim)?;
        let index = self.repeated(index, dim, "index_add")?;
        if index.shape() != source.shape() {
            let (index, source) = (index.shape(), source.shape());
            let message = format!("index_add: expected a source {index}, got {source}");
            return Err(usage_error(message, Location::caller()));
        }
        self.scatter_add(dim, &index, source)
    }

    /// With the first elements of each dimension replaced by those of `part`, which has as many or fewer: what an
    /// index does not reach stays as it is.
    #[track_caller]
    pub(super) fn with_part(&self, mut part: Self) -> Result<Self> {
        for dim in 0..self.shape().rank() {
            let (from, to) = (part.dims()[dim], self.dims()[dim]);
            if from < to {
                let mut rest = self.narrow(dim, from, to - from)?;
                for behind in dim + 1..self.shape().rank() {
                    rest = rest.narrow(behind, 0, part.dims()[behind])?;
                }
                part = Self::cat(&[part, rest], dim)?;
            }
        }
        Ok(part)
    }

    /// The part that an index is for: as large as the index in each dimension but `dim`.
    #[track_caller]
    pub(super) fn as_large_as(&self, index: &Self, dim: usize, what: &str) -> Result<Self> {
        let (own, wanted) = (self.shape(), index.shape());
        let mut pairs = own.iter().zip(wanted.iter()).enumerate();
        let fits = own.rank() == wanted.rank()
            && pairs.all(|(i, (own, wanted))| i == dim || own >= wanted);
        if !fits {
            let message = format!("{what}: an index {wanted} is too large for a tensor {own}");
            return Err(usage_error(message, Location::caller()));
        }
        let mut part = self.clone();
        for (other, &extent) in wanted.iter().enumerate() {
            if other != dim && extent < own[other] {
                part = part.narrow(other, 0, extent)?;
            }
        }
        Ok(part)
    }

    /// A vector of indices along a dimension, repeated over the others.
    #[track_caller]
    fn repeated(&self, index: &Self, dim: usize, what: &str) -> Result<Self> {
        let count = index.shape().numel();
        if index.shape().rank() > 1 {
            let shape = index.shape();
            let message = format!("{what}: expected a vector of indices, got the shape {shape}");
            return Err(usage_error(message, Location::caller()));
        }
        let rank = self.shape().rank();
        if rank == 0 {
            return index.reshape([]);
        }
        let mut alone = SmallVec::<[usize; 8]>::from_elem(1, rank);
        alone[dim] = count;
        let mut all = SmallVec::<[usize; 8]>::from_slice(self.dims());
        all[dim] = count;
        index.reshape(&alone[..])?.expand(&all[..])
    }
}
