//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{AvgPool2d, MaxPool2d, PoolSettings, Windows};

impl Tensor {
    /// The largest element of each window, as `torch.nn.functional.max_pool2d`: `[N, C, H, W]` or
    /// `[C, H, W]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if no window fits into the images.
    #[track_caller]
    pub fn max_pool2d(&self, settings: PoolSettings) -> Result<Self> {
        self.max_pooled(Windows::Fixed(settings))
    }

    /// The largest element of each of so many windows, as `torch.nn.functional.adaptive_max_pool2d`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for empty images, or no windows.
    #[track_caller]
    pub fn adaptive_max_pool2d(&self, places: [usize; 2]) -> Result<Self> {
        self.max_pooled(Windows::Adaptive(places))
    }

    /// The mean of each window, as `torch.nn.functional.avg_pool2d`: `[N, C, H, W]` or `[C, H, W]`; with
    /// `count_include_pad`, which is PyTorch's default, zeros of the padding count.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if no window fits into the images, or windows are dilated.
    #[track_caller]
    pub fn avg_pool2d(&self, settings: PoolSettings, count_include_pad: bool) -> Result<Self> {
        self.avg_pooled(Windows::Fixed(settings), count_include_pad)
    }

    /// The mean of each of so many windows, as `torch.nn.functional.adaptive_avg_pool2d`. With `[1, 1]` the
    /// mean of each image.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for empty images, or no windows.
    #[track_caller]
    pub fn adaptive_avg_pool2d(&self, places: [usize; 2]) -> Result<Self> {
        self.avg_pooled(Windows::Adaptive(places), true)
    }

    /// [`Tensor::max_pool2d`] of sequences, as `torch.nn.functional.max_pool1d`: `[N, C, L]` or `[C, L]`.
    /// Settings are of images of one row: see [`PoolSettings::of_rows`].
    ///
    /// # Errors
    /// As [`Tensor::max_pool2d`].
    #[track_caller]
    pub fn max_pool1d(&self, settings: PoolSettings) -> Result<Self> {
        self.with_row()?.max_pool2d(settings)?.without_row()
    }

    /// [`Tensor::avg_pool2d`] of sequences, as `torch.nn.functional.avg_pool1d`: see [`Tensor::max_pool1d`].
    ///
    /// # Errors
    /// As [`Tensor::avg_pool2d`].
    #[track_caller]
    pub fn avg_pool1d(&self, settings: PoolSettings, count_include_pad: bool) -> Result<Self> {
        let rows = self.with_row()?;
        rows.avg_pool2d(settings, count_include_pad)?.without_row()
    }

    /// [`Tensor::adaptive_avg_pool2d`] of sequences, as `torch.nn.functional.adaptive_avg_pool1d`.
    ///
    /// # Errors
    /// As [`Tensor::adaptive_avg_pool2d`].
    #[track_caller]
    pub fn adaptive_avg_pool1d(&self, places: usize) -> Result<Self> {
        let rows = self.with_row()?;
        rows.adaptive_avg_pool2d([1, places])?.without_row()
    }

    #[track_caller]
    fn max_pooled(&self, windows: Windows) -> Result<Self> {
        let outputs = Self::apply(MaxPool2d { windows }, &[&self.batched(4)?])?;
        let none = || {
            let location = highwater_graph::Location::caller();
            crate::error::usage_error("the operation has no output", location)
        };
        let maxima = outputs.into_iter().next().ok_or_else(none)?;
        maxima.unbatched(self)
    }

    #[track_caller]
    fn avg_pooled(&self, windows: Windows, count_include_pad: bool) -> Result<Self> {
        let op = AvgPool2d {
            windows,
            count_include_pad,
        };
        Self::apply_one(op, &[&self.batched(4)?])?.unbatched(self)
    }
}
