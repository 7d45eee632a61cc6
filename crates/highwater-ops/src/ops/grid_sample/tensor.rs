//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::error::usage_error;
use crate::{Location, Result, Tensor};
use highwater_ops::{GridMode, GridPadding, GridSample};

impl Tensor {
    /// Images `[N, C, H, W]` at the places of a grid `[N, HO, WO, 2]`, x before y, where -1 and 1 are the images' ends:
    /// `[N, C, HO, WO]`, as `torch.nn.functional.grid_sample(x, grid, mode, padding_mode, align_corners)`. A place that
    /// is not a number shows 0. There are no gradients of its gradients.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the shapes do not fit, or for a dtype that is not of floats.
    #[track_caller]
    pub fn grid_sample(
        &self,
        grid: &Self,
        mode: GridMode,
        padding: GridPadding,
        align_corners: bool,
    ) -> Result<Self> {
        let op = GridSample {
            mode,
            padding,
            align_corners,
        };
        Self::apply_one(op, &[self, grid])
    }

    /// The grid `[N, H, W, 2]` that [`Tensor::grid_sample`] sees images through, moved by affine maps `[N, 2, 3]`, for
    /// images of height and width `size`: as `torch.nn.functional.affine_grid`, whose size is `[N, C, H, W]`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for maps of another shape; [`crate::Error::Op`] for a dtype that is not of floats.
    #[track_caller]
    pub fn affine_grid(&self, size: [usize; 2], align_corners: bool) -> Result<Self> {
        let &[batch, 2, 3] = self.dims() else {
            let message = format!("affine_grid: expected maps [N, 2, 3], got {}", self.shape());
            return Err(usage_error(message, Location::caller()));
        };
        let along = |extent: usize, shape: [usize; 4]| {
            // The outermost pixels' centres, from -1 to 1 or, where those are the edges, half a pixel less.
            let last = extent.saturating_sub(1).max(1) as f64;
            let reach = if align_corners {
                1.0
            } else {
                (extent as f64 - 1.0) / extent as f64
            };
            let place = |i: usize| match extent {
                1 => 0.0,
                _ => (2.0 * i as f64 / last - 1.0) * reach,
            };
            let places: Vec<f64> = (0..extent).map(place).collect();
            Self::from_slice(self.engine(), &places, shape)?.to_dtype(self.dtype())
        };
        let (x, y) = (
            along(size[1], [1, 1, size[1], 1])?,
            along(size[0], [1, size[0], 1, 1])?,
        );
        let column = |i: usize| self.narrow(2, i, 1)?.reshape([batch, 1, 1, 2]);
        let moved = x.mul(&column(0)?)?.add(&y.mul(&column(1)?)?)?;
        moved.add(&column(2)?)
    }
}
