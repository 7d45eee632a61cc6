//! Larger images.

use super::Module;
use crate::tensor::Tensor;
use crate::{self as highwater, Result};
use highwater_ops::Interpolation;

/// Images so many times as high and wide, as `torch.nn.Upsample(scale_factor=..)`: `[N, C, H, W]` or
/// `[C, H, W]`.
///
/// ```
/// use highwater::nn::{Interpolation, Upsample};
/// use highwater::prelude::*;
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let larger = Upsample::new([2.0, 2.0], Interpolation::Nearest);
/// let x = Tensor::randn(&engine, [2, 3, 8, 8])?;
/// assert_eq!(larger.forward(&x)?.dims(), [2, 3, 16, 16]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Module)]
pub struct Upsample {
    #[module(skip)]
    scale: [f64; 2],
    #[module(skip)]
    mode: Interpolation,
}

impl Upsample {
    /// By these factors, of rows and of columns.
    #[must_use]
    pub fn new(scale: [f64; 2], mode: Interpolation) -> Self {
        Self { scale, mode }
    }

    /// `[N, C, H, W]` to `[N, C, H', W']`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for images that are empty, or would be.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.interpolate_by(self.scale, self.mode)
    }
}
