//! Views of tensors as methods of [`Tensor`], with PyTorch's names: other layouts over the same
//! elements. The methods that are operations stand in the operations' folders: see `operations.rs`.

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use highwater_graph::Location;
use highwater_graph::{RANK_MAX, Shape};

impl Tensor {
    /// Swaps two dimensions: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if one is not there.
    #[track_caller]
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        let refused = || no_dimension("transpose", a.max(b), self.shape());
        self.view(Location::caller(), |layout| layout.transpose(a, b), refused)
    }

    /// Reorders the dimensions: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] unless `order` is a permutation.
    #[track_caller]
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        let refused = || {
            let shape = self.shape();
            format!("permute: {order:?} does not name each dimension of shape {shape} once")
        };
        self.view(Location::caller(), |layout| layout.permute(order), refused)
    }

    /// `length` elements of one dimension from `start`: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if they are not all there.
    #[track_caller]
    pub fn narrow(&self, dim: usize, start: usize, length: usize) -> Result<Self> {
        let refused = || match self.dims().get(dim) {
            Some(extent) => format!(
                "narrow({dim}, {start}, {length}) ends behind dimension {dim} of shape {}, whose \
                 extent is {extent}",
                self.shape()
            ),
            None => no_dimension("narrow", dim, self.shape()),
        };
        self.view(
            Location::caller(),
            |layout| layout.narrow(dim, start, length),
            refused,
        )
    }

    /// Equal parts of one dimension, as `torch.chunk` where it divides: views.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the dimension is not there or does not divide.
    #[track_caller]
    pub fn chunk(&self, chunks: usize, dim: usize) -> Result<Vec<Self>> {
        let extent = self.dims().get(dim).copied().unwrap_or(0);
        if chunks == 0 || extent % chunks != 0 || dim >= self.shape().rank() {
            let message = if dim >= self.shape().rank() {
                no_dimension("chunk", dim, self.shape())
            } else {
                format!(
                    "chunk: {chunks} equal parts do not make dimension {dim} of shape {}",
                    self.shape()
                )
            };
            return Err(usage_error(message, Location::caller()));
        }
        let length = extent / chunks;
        let part = |i| self.narrow(dim, i * length, length);
        Location::caller().at(|| (0..chunks).map(part).collect())
    }

    /// Repeats dimensions of extent 1, as `tensor.expand`: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the shape does not broadcast to `shape`.
    #[track_caller]
    pub fn expand(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = checked(&shape.into(), "expand")?;
        let refused = || {
            let own = self.shape();
            format!("expand: only extents of 1 can grow; {own} does not become {shape}")
        };
        self.view(Location::caller(), |layout| layout.expand(&shape), refused)
    }

    /// The same elements in another shape: a view where strides allow it, else a copy.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the counts differ.
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = checked(&shape.into(), "reshape")?;
        let location = Location::caller();
        if shape.numel() != self.shape().numel() {
            let message = format!("reshape of {} to {shape}: the counts differ", self.shape());
            return Err(usage_error(message, location));
        }
        let as_view = self
            .operand(&mut self.engine.lock())?
            .spec
            .layout
            .reshape(&shape)
            .is_some();
        let source = if as_view {
            self.clone()
        } else {
            self.contiguous()?
        };
        let refused = || format!("reshape of {} to {shape}", self.shape());
        source.view(location, |layout| layout.reshape(&shape), refused)
    }
}

fn no_dimension(what: &str, dim: usize, shape: &Shape) -> String {
    let rank = shape.rank();
    format!("{what}: there is no dimension {dim} in shape {shape}, of rank {rank}")
}

/// Refuses a shape whose elements cannot be counted.
#[track_caller]
fn checked(shape: &Shape, what: &str) -> Result<Shape> {
    let location = Location::caller();
    Shape::checked(shape).ok_or_else(|| {
        let message = format!(
            "{what}: the shape {shape} has more than {RANK_MAX} dimensions, or more elements than \
             any memory"
        );
        usage_error(message, location)
    })
}
