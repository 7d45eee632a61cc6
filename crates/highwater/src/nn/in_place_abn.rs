//! Batch normalisation with an activation, of which backward keeps the result alone.

use super::{Mode, Module};
use crate::engine::Engine;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::buffer::Buffer;
use crate::tensor::parameter::Parameter;
use crate::{self as highwater, Result};
use highwater_graph::Location;
use highwater_ops::{Invertible, RunningAverage};

/// Settings of [`InPlaceAbn`], with the original's defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InPlaceAbnOptions {
    /// What is added to variances, and to the magnitudes of weights.
    pub eps: f64,
    /// What new statistics count in running ones.
    pub momentum: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// What follows the norm.
    pub activation: Invertible,
}

impl Default for InPlaceAbnOptions {
    fn default() -> Self {
        Self {
            eps: 1e-5,
            momentum: 0.1,
            affine: true,
            activation: Invertible::LeakyRelu { slope: 0.01 },
        }
    }
}

/// In-Place Activated Batch Normalisation (Rota Bulò, Porzi and Kontschieder, 2018), as `inplace_abn.InPlaceABN`:
/// `activation(n (|weight| + eps) + bias)`, where `n` is the input less its mean, by its deviation.
///
/// This is another function than [`BatchNorm2d`](super::BatchNorm2d) with an activation behind it: weights count
/// by their magnitude, and never as 0. What backward needs is the result, which whatever follows keeps anyway;
/// the input may go, so that a norm and its activation cost the memory of one tensor instead of two, and no
/// recomputation. What was normalised is found back from the result, rounded: for
/// [`LeakyRelu`](Invertible::LeakyRelu) as exactly as results are held, for [`Elu`](Invertible::Elu) less exactly
/// the closer a result is to its lower bound. In evaluation mode it is the plain composition, by running
/// statistics.
///
/// Two things are PyTorch's rather than the original's: the gradient of a weight that is 0 is 0 (the original's
/// code counts it as positive), and nothing is overwritten that somebody else still reads.
///
/// ```
/// use highwater::nn::{InPlaceAbn, InPlaceAbnOptions};
/// use highwater::prelude::*;
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let norm = InPlaceAbn::new(&engine, 8, InPlaceAbnOptions::default())?;
/// let x = Tensor::randn(&engine, [2, 8, 4, 4])?;
/// assert_eq!(norm.forward(&x)?.dims(), [2, 8, 4, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Module)]
pub struct InPlaceAbn {
    /// `[C]`, ones at first.
    pub weight: Option<Parameter>,
    /// `[C]`, zeros at first.
    pub bias: Option<Parameter>,
    /// `[C]`, zeros at first.
    pub running_mean: Buffer,
    /// `[C]`, ones at first: of unbiased variances.
    pub running_var: Buffer,
    mode: Mode,
    #[module(skip)]
    options: InPlaceAbnOptions,
    #[module(skip)]
    channels: usize,
}

impl InPlaceAbn {
    /// Weight one, bias zero, running statistics of mean 0 and variance 1.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for no channels, an `eps` that is no `f32` above 0 or a momentum that is not
    /// from 0 to 1; [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, channels: usize, options: InPlaceAbnOptions) -> Result<Self> {
        super::layers::check_norm("inplace_abn", channels, options.eps)?;
        if !(0.0..=1.0).contains(&options.momentum) {
            let momentum = options.momentum;
            let message = format!("inplace_abn: momentum must be from 0 to 1, not {momentum}");
            return Err(usage_error(message, Location::caller()));
        }
        let ones = |x: &mut [f32]| x.fill(1.0);
        let parameter = |fill: fn(&mut [f32])| Parameter::new(engine, [channels], fill);
        Ok(Self {
            weight: options.affine.then(|| parameter(ones)).transpose()?,
            bias: options.affine.then(|| parameter(|_| {})).transpose()?,
            running_mean: Buffer::new(engine, [channels], |_| {})?,
            running_var: Buffer::new(engine, [channels], ones)?,
            mode: Mode::default(),
            options,
            channels,
        })
    }

    /// The same shape: `[N, C, ..]`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for another number of channels; [`crate::Error::Op`] where a channel has no more
    /// than one element in training mode, or for an activation that cannot be turned back.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.dims().get(1) != Some(&self.channels) {
            let (channels, shape) = (self.channels, x.shape());
            let message =
                format!("inplace_abn: an input [N, {channels}, ..] is needed, not {shape}");
            return Err(usage_error(message, Location::caller()));
        }
        let InPlaceAbnOptions {
            eps,
            momentum,
            activation,
            ..
        } = self.options;
        let weight = match &self.weight {
            Some(weight) => Some(weight.abs()?.add_scalar(eps)?),
            None => None,
        };
        let affine = weight.as_ref().zip(self.bias.as_deref());
        if !self.mode.is_training() {
            let running: (&Tensor, &Tensor) = (&self.running_mean, &self.running_var);
            let z = x.batch_norm_inference(running, affine, eps)?;
            return match activation {
                Invertible::Identity => Ok(z),
                Invertible::LeakyRelu { slope } => z.leaky_relu(slope),
                Invertible::Elu { alpha } => z.elu(alpha),
            };
        }
        let [y, mean, var] = x.inplace_abn(affine, eps, activation)?;
        let count = (x.shape().numel() / self.channels) as f64;
        let unbiased = count / (count - 1.0);
        for (running, new, correction) in [
            (&self.running_mean, &mean, 1.0),
            (&self.running_var, &var, unbiased),
        ] {
            let op = RunningAverage {
                momentum,
                correction,
            };
            running.assign(&Tensor::apply_one(op, &[running, new])?)?;
        }
        Ok(y)
    }
}
