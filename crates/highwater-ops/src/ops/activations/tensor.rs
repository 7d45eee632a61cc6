//! The methods of `Tensor`, which the crate `highwater` compiles.

use crate::{Result, Tensor};
use highwater_ops::{Elu, LeakyRelu, Softplus};

impl Tensor {
    /// Elementwise `x` above zero, else `slope x`, as `torch.nn.functional.leaky_relu` (whose slope is 0.01
    /// unless another is given).
    ///
    /// # Errors
    /// [`crate::Error::Op`] for a dtype that is no float type.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Result<Self> {
        Self::apply_one(LeakyRelu { slope }, &[self])
    }

    /// The exponential linear unit, elementwise: `x` above zero, else `alpha (exp(x) - 1)`, as
    /// `torch.nn.functional.elu` (whose alpha is 1 unless another is given).
    ///
    /// # Errors
    /// As [`Tensor::leaky_relu`].
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Result<Self> {
        Self::apply_one(Elu { alpha }, &[self])
    }

    /// Elementwise `log(1 + exp(x))`, as `torch.nn.functional.softplus`.
    ///
    /// # Errors
    /// As [`Tensor::leaky_relu`].
    #[track_caller]
    pub fn softplus(&self) -> Result<Self> {
        self.softplus_with(1.0, 20.0)
    }

    /// Elementwise `log(1 + exp(beta x)) / beta`, and `x` where `beta x` is above the threshold, as
    /// `torch.nn.functional.softplus(beta, threshold)`.
    ///
    /// # Errors
    /// As [`Tensor::leaky_relu`].
    #[track_caller]
    pub fn softplus_with(&self, beta: f64, threshold: f64) -> Result<Self> {
        Self::apply_one(Softplus { beta, threshold }, &[self])
    }
}
