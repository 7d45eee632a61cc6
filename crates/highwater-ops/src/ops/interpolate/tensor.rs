//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Interpolate, Interpolation};

impl Tensor {
    /// Images of another size, as `torch.nn.functional.interpolate(size=..)`: `[N, C, H, W]` or `[C, H, W]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for empty images or sizes.
    #[track_caller]
    pub fn interpolate(&self, size: [usize; 2], mode: Interpolation) -> Result<Self> {
        self.interpolated(Interpolate {
            size,
            scale: None,
            mode,
        })
    }

    /// Images so many times as high and wide, rounded down, as
    /// `torch.nn.functional.interpolate(scale_factor=..)`: `[N, C, H, W]` or `[C, H, W]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for images that are empty, or would be.
    #[track_caller]
    pub fn interpolate_by(&self, scale: [f64; 2], mode: Interpolation) -> Result<Self> {
        let sides = self.dims().last_chunk::<2>().copied().unwrap_or_default();
        self.interpolated(Interpolate {
            size: std::array::from_fn(|i| (sides[i] as f64 * scale[i]) as usize),
            scale: Some(scale),
            mode,
        })
    }

    #[track_caller]
    fn interpolated(&self, op: Interpolate) -> Result<Self> {
        Self::apply_one(op, &[&self.batched(4)?])?.unbatched(self)
    }
}
