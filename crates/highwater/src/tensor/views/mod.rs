//! Views of tensors as methods of [`Tensor`], with PyTorch's names: other layouts over the same
//! elements. The methods that are operations stand in the operations' folders: see `operations.rs`.

mod extents;
mod parts;
mod pixels;
mod repeats;

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::dim::Dim;
use highwater_graph::Location;
use highwater_graph::{Layout, RANK_MAX, Shape};
use smallvec::SmallVec;

impl Tensor {
    /// Swaps two dimensions: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if one is not there.
    #[track_caller]
    pub fn transpose(&self, a: impl Dim, b: impl Dim) -> Result<Self> {
        let (a, b) = (self.own_dim("transpose", a)?, self.own_dim("transpose", b)?);
        self.seen("transpose", |layout| layout.transpose(a, b))
    }

    /// The transpose of a matrix: a view. A vector or a scalar stays as it is, as `tensor.t()`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for more than two dimensions.
    #[track_caller]
    pub fn t(&self) -> Result<Self> {
        match self.shape().rank() {
            0 | 1 => Ok(self.clone()),
            2 => self.transpose(0, 1),
            _ => {
                let shape = self.shape();
                let message = format!("t: takes at most two dimensions, the shape is {shape}");
                Err(usage_error(message, Location::caller()))
            }
        }
    }

    /// Reorders the dimensions: a view.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] unless `order` is a permutation.
    #[track_caller]
    pub fn permute<D: Dim>(&self, order: &[D]) -> Result<Self> {
        let rank = self.shape().rank();
        // What is not there makes no permutation.
        let dims: SmallVec<[usize; 8]> = order
            .iter()
            .map(|dim| dim.position(rank).unwrap_or(usize::MAX))
            .collect();
        let refused = || {
            let shape = self.shape();
            format!("permute: {order:?} does not name each dimension of shape {shape} once")
        };
        self.view(Location::caller(), |layout| layout.permute(&dims), refused)
    }

    /// Moves dimension `from` to position `to`; the others keep their order: a view, as
    /// `torch.movedim`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if one is not there.
    #[track_caller]
    pub fn movedim(&self, from: impl Dim, to: impl Dim) -> Result<Self> {
        let (from, to) = (self.own_dim("movedim", from)?, self.own_dim("movedim", to)?);
        let mut order: SmallVec<[usize; 8]> = (0..self.shape().rank()).collect();
        order.remove(from);
        order.insert(to, from);
        self.permute(&order)
    }

    /// The elements whose indices in dimensions `a` and `b` differ by `offset` (above the diagonal if
    /// positive), as a new last dimension: a view, as `torch.diagonal`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if a dimension is not there, or both are the same.
    #[track_caller]
    pub fn diagonal(&self, offset: isize, a: impl Dim, b: impl Dim) -> Result<Self> {
        let (a, b) = (self.own_dim("diagonal", a)?, self.own_dim("diagonal", b)?);
        if a == b {
            let message = format!("diagonal: dimensions {a} and {b} are the same");
            return Err(usage_error(message, Location::caller()));
        }
        self.seen("diagonal", |layout| diagonal(layout, offset, a, b))
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

    /// Sees the elements through another layout, which was checked to be one.
    #[track_caller]
    fn seen(&self, what: &str, layout: impl FnOnce(&Layout) -> Option<Layout>) -> Result<Self> {
        let refused = || format!("{what}: no view of shape {}", self.shape());
        self.view(Location::caller(), layout, refused)
    }
}

fn diagonal(layout: &Layout, offset: isize, a: usize, b: usize) -> Option<Layout> {
    let (skip_a, skip_b) = match offset {
        ..0 => (offset.unsigned_abs(), 0),
        _ => (0, offset.unsigned_abs()),
    };
    let left = |dim: usize, skip: usize| layout.shape()[dim].saturating_sub(skip);
    let length = left(a, skip_a).min(left(b, skip_b));
    let (skip_a, skip_b) = if length == 0 {
        (0, 0)
    } else {
        (skip_a, skip_b)
    };
    let start = layout
        .narrow(a, skip_a, length)?
        .narrow(b, skip_b, length)?;
    let kept = (0..layout.shape().rank()).filter(|&dim| dim != a && dim != b);
    let strides = start.strides();
    let along = strides[a].saturating_add(strides[b]);
    let shape: Shape = kept
        .clone()
        .map(|dim| start.shape()[dim])
        .chain([length])
        .collect();
    let strides: SmallVec<[usize; 8]> = kept.map(|dim| strides[dim]).chain([along]).collect();
    Some(Layout::strided(shape, &strides, start.offset()))
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
