//! Parts of tensors, which are views, and what puts tensors together.

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::dim::Dim;
use highwater_graph::Location;
use std::borrow::Borrow;

impl Tensor {
    /// `length` elements of one dimension from `start`: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if they are not all there.
    #[track_caller]
    pub fn narrow(&self, dim: impl Dim, start: usize, length: usize) -> Result<Self> {
        let dim = self.own_dim("narrow", dim)?;
        let refused = || {
            format!(
                "narrow({dim}, {start}, {length}) ends behind dimension {dim} of shape {}, whose \
                 extent is {}",
                self.shape(),
                self.dims()[dim]
            )
        };
        self.view(
            Location::caller(),
            |layout| layout.narrow(dim, start, length),
            refused,
        )
    }

    /// The elements at one index of a dimension, without that dimension: a view, as `torch.select`.
    /// Negative indices count from behind.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the dimension or the index is not there.
    #[track_caller]
    pub fn select(&self, dim: impl Dim, index: isize) -> Result<Self> {
        let dim = self.own_dim("select", dim)?;
        let extent = self.dims()[dim];
        let Some(at) = index.position(extent) else {
            let shape = self.shape();
            let message = format!(
                "select: index {index} is out of range for dimension {dim} of shape {shape}"
            );
            return Err(usage_error(message, Location::caller()));
        };
        self.narrow(dim, at, 1)?.squeeze(dim)
    }

    /// The elements at each index of a dimension, one after the other, as `torch.unbind`: views.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the dimension is not there.
    #[track_caller]
    pub fn unbind(&self, dim: impl Dim) -> Result<Vec<Self>> {
        let dim = self.own_dim("unbind", dim)?;
        let indices = 0..self.dims()[dim];
        Location::caller().at(|| indices.map(|i| self.select(dim, i as isize)).collect())
    }

    /// Parts of one dimension, as `torch.chunk`: views. All are of one size, rounded up, but the last, which has what is
    /// left; where that is nothing there are fewer parts.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the dimension is not there, and for no parts.
    #[track_caller]
    pub fn chunk(&self, chunks: usize, dim: impl Dim) -> Result<Vec<Self>> {
        let dim = self.own_dim("chunk", dim)?;
        let extent = self.dims()[dim];
        let mut none = Vec::new();
        // Of an empty dimension there are as many empty parts as are asked for.
        if chunks == 0 || extent == 0 && none.try_reserve_exact(chunks).is_err() {
            let message = format!(
                "chunk: {chunks} parts do not make dimension {dim} of shape {}",
                self.shape()
            );
            return Err(usage_error(message, Location::caller()));
        }
        if extent == 0 {
            none.resize(chunks, 0);
            return self.split_sizes(&none, dim);
        }
        self.split(extent.div_ceil(chunks), dim)
    }

    /// Parts of one dimension of `size` elements each, the last perhaps of fewer, as
    /// `torch.split(x, size, dim)`: views.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the dimension is not there, or for a size of 0 of one that is not empty.
    #[track_caller]
    pub fn split(&self, size: usize, dim: impl Dim) -> Result<Vec<Self>> {
        let dim = self.own_dim("split", dim)?;
        let extent = self.dims()[dim];
        if size == 0 && extent > 0 {
            let shape = self.shape();
            let message =
                format!("split: parts of 0 elements do not make dimension {dim} of shape {shape}");
            return Err(usage_error(message, Location::caller()));
        }
        let parts = extent.div_ceil(size.max(1)).max(1);
        let sizes: Vec<usize> = (0..parts).map(|i| size.min(extent - i * size)).collect();
        self.split_sizes(&sizes, dim)
    }

    /// Parts of one dimension of these sizes, as `torch.split(x, sizes, dim)`: views.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the dimension is not there, or the sizes do not add up to it.
    #[track_caller]
    pub fn split_sizes(&self, sizes: &[usize], dim: impl Dim) -> Result<Vec<Self>> {
        let dim = self.own_dim("split", dim)?;
        let total = sizes
            .iter()
            .try_fold(0_usize, |sum, &size| sum.checked_add(size));
        if total != Some(self.dims()[dim]) {
            let shape = self.shape();
            let message =
                format!("split: {sizes:?} do not add up to dimension {dim} of shape {shape}");
            return Err(usage_error(message, Location::caller()));
        }
        let mut start = 0;
        let part = |&size: &usize| {
            let part = self.narrow(dim, start, size);
            start += size;
            part
        };
        Location::caller().at(|| sizes.iter().map(part).collect())
    }

    /// Tensors of one shape along a new dimension at position `dim` of the result, as `torch.stack`.
    ///
    /// # Errors
    /// As [`Tensor::cat`] and [`Tensor::unsqueeze`].
    #[track_caller]
    pub fn stack<T: Borrow<Self>>(tensors: &[T], dim: impl Dim) -> Result<Self> {
        let location = Location::caller();
        let tensors = tensors.iter().map(Borrow::borrow);
        let mut unequal = tensors.clone().zip(tensors.clone().skip(1));
        if let Some((a, b)) = unequal.find(|(a, b)| a.shape() != b.shape()) {
            let message = format!("stack: the shapes {} and {} differ", a.shape(), b.shape());
            return Err(usage_error(message, location));
        }
        location.at(|| {
            let rows: Result<Vec<Self>> = tensors.map(|tensor| tensor.unsqueeze(dim)).collect();
            Self::cat(&rows?, dim)
        })
    }
}
