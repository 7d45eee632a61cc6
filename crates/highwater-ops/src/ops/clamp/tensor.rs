//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::Clamp;

impl Tensor {
    /// Elementwise `x`, but at least `min` and at most `max`, as `torch.clamp(min, max)`. NaN stays NaN;
    /// where `min` is above `max`, all is `max`. The gradient is 1 between the bounds, else 0.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float type.
    #[track_caller]
    pub fn clamp(&self, min: f64, max: f64) -> Result<Self> {
        self.clamped(Some(min), Some(max))
    }

    /// As [`Tensor::clamp`], without an upper bound: `torch.clamp(min=..)`.
    ///
    /// # Errors
    /// As [`Tensor::clamp`].
    #[track_caller]
    pub fn clamp_min(&self, min: f64) -> Result<Self> {
        self.clamped(Some(min), None)
    }

    /// As [`Tensor::clamp`], without a lower bound: `torch.clamp(max=..)`.
    ///
    /// # Errors
    /// As [`Tensor::clamp`].
    #[track_caller]
    pub fn clamp_max(&self, max: f64) -> Result<Self> {
        self.clamped(None, Some(max))
    }

    #[track_caller]
    fn clamped(&self, min: Option<f64>, max: Option<f64>) -> Result<Self> {
        Self::apply_one(Clamp { min, max }, &[self])
    }
}
