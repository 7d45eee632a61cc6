//! Pools of images.

use super::Module;
use crate::tensor::Tensor;
use crate::{self as highwater, Result};
use highwater_ops::PoolSettings;

/// The largest element of each window, as `torch.nn.MaxPool2d`: `[N, C, H, W]` or `[C, H, W]`.
///
/// ```
/// use highwater::nn::{MaxPool2d, PoolSettings};
/// use highwater::prelude::*;
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let pool = MaxPool2d::new(PoolSettings { stride: [2, 2], padding: [1, 1], ..PoolSettings::new([3, 3]) });
/// let x = Tensor::randn(&engine, [2, 3, 32, 32])?;
/// assert_eq!(pool.forward(&x)?.dims(), [2, 3, 16, 16]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Module)]
pub struct MaxPool2d {
    #[module(skip)]
    settings: PoolSettings,
}

impl MaxPool2d {
    /// With windows like these.
    #[must_use]
    pub fn new(settings: PoolSettings) -> Self {
        Self { settings }
    }

    /// `[N, C, H, W]` to `[N, C, H', W']`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if no window fits into the images.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.max_pool2d(self.settings)
    }
}

/// The mean of each window, as `torch.nn.AvgPool2d`: `[N, C, H, W]` or `[C, H, W]`.
#[derive(Debug, Clone, Copy, Module)]
pub struct AvgPool2d {
    #[module(skip)]
    settings: PoolSettings,
    #[module(skip)]
    count_include_pad: bool,
}

impl AvgPool2d {
    /// With windows like these; with `count_include_pad`, which is PyTorch's default, zeros of the padding
    /// count.
    #[must_use]
    pub fn new(settings: PoolSettings, count_include_pad: bool) -> Self {
        Self {
            settings,
            count_include_pad,
        }
    }

    /// `[N, C, H, W]` to `[N, C, H', W']`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if no window fits into the images, or windows are dilated.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.avg_pool2d(self.settings, self.count_include_pad)
    }
}

/// The mean of each of so many windows, as `torch.nn.AdaptiveAvgPool2d`: `[N, C, H, W]` or `[C, H, W]`.
#[derive(Debug, Clone, Copy, Module)]
pub struct AdaptiveAvgPool2d {
    #[module(skip)]
    places: [usize; 2],
}

impl AdaptiveAvgPool2d {
    /// To so many rows and columns; `[1, 1]` for the mean of each image.
    #[must_use]
    pub fn new(places: [usize; 2]) -> Self {
        Self { places }
    }

    /// `[N, C, H, W]` to `[N, C, rows, columns]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for empty images, or no windows.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.adaptive_avg_pool2d(self.places)
    }
}
