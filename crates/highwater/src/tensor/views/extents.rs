//! Views that add, drop, join and cut dimensions.

use crate::Result;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::dim::Dim;
use highwater_graph::{Location, RANK_MAX, Shape};
use smallvec::SmallVec;

/// Extents in the making.
type Extents = SmallVec<[usize; 8]>;

impl Tensor {
    /// A new dimension of extent 1 at position `dim` of the result: a view, as `torch.unsqueeze`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the result has no such position, or too many dimensions.
    #[track_caller]
    pub fn unsqueeze(&self, dim: impl Dim) -> Result<Self> {
        let rank = self.shape().rank();
        let position = dim.position(rank + 1).filter(|_| rank < RANK_MAX);
        let Some(position) = position else {
            let shape = self.shape();
            let message = format!("unsqueeze: no new dimension {dim:?} fits into shape {shape}");
            return Err(usage_error(message, Location::caller()));
        };
        let mut extents = Extents::from_slice(self.dims());
        extents.insert(position, 1);
        self.reshape(&extents[..])
    }

    /// Without the dimension, if its extent is 1, else as it is: a view, as `torch.squeeze(x, dim)`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if it is not there.
    #[track_caller]
    pub fn squeeze(&self, dim: impl Dim) -> Result<Self> {
        self.squeeze_dims(&[dim])
    }

    /// Without those of these dimensions whose extent is 1 (of all, if none is given): a view, as
    /// `torch.squeeze`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if one is not there, or is named twice.
    #[track_caller]
    pub fn squeeze_dims<D: Dim>(&self, dims: &[D]) -> Result<Self> {
        let dims = self.dims_of("squeeze", dims)?;
        let extents = self.dims().iter().enumerate();
        let goes = |dim, extent| extent == 1 && (dims.is_empty() || dims.contains(&dim));
        let kept: Shape = extents
            .filter(|&(dim, &extent)| !goes(dim, extent))
            .map(|(_, &extent)| extent)
            .collect();
        self.reshape(kept)
    }

    /// Joins the dimensions from `start` to `end`, both included, into one: a view where strides allow
    /// it, else a copy. A scalar becomes a vector. As `torch.flatten`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if one is not there, or they are in the wrong order.
    #[track_caller]
    pub fn flatten(&self, start: impl Dim, end: impl Dim) -> Result<Self> {
        let (from, to) = (self.dim("flatten", start)?, self.dim("flatten", end)?);
        if from > to {
            let shape = self.shape();
            let message = format!(
                "flatten({start:?}, {end:?}) of shape {shape}: the first is behind the last"
            );
            return Err(usage_error(message, Location::caller()));
        }
        let dims = self.dims();
        let to = (to + 1).min(dims.len());
        let joined = dims[from..to].iter().product();
        let before = dims[..from].iter().copied();
        let shape: Shape = before
            .chain([joined])
            .chain(dims[to..].iter().copied())
            .collect();
        self.reshape(shape)
    }

    /// Cuts one dimension into several of these extents: a view, as `torch.unflatten`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if it is not there, or is not as long as their product.
    #[track_caller]
    pub fn unflatten(&self, dim: impl Dim, extents: &[usize]) -> Result<Self> {
        let dim = self.own_dim("unflatten", dim)?;
        let (dims, location) = (self.dims(), Location::caller());
        let product = extents
            .iter()
            .try_fold(1_usize, |n, &extent| n.checked_mul(extent));
        let fits = dims.len() + extents.len() <= RANK_MAX + 1;
        if product != Some(dims[dim]) || !fits {
            let shape = self.shape();
            let message =
                format!("unflatten: {extents:?} do not make dimension {dim} of shape {shape}");
            return Err(usage_error(message, location));
        }
        let before = dims[..dim].iter().chain(extents);
        let shape: Shape = before.chain(&dims[dim + 1..]).copied().collect();
        self.reshape(shape)
    }
}
