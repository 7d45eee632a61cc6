//! Normalisation by channels.

use super::{Mode, Module};
use crate::engine::Engine;
use crate::error::usage_error;
use crate::pending::context::{MicroBatch, current_micro_batch};
use crate::tensor::Tensor;
use crate::tensor::buffer::Buffer;
use crate::tensor::parameter::Parameter;
use crate::{self as highwater, Error, Result};
use highwater_graph::Location;
use highwater_ops::RunningAverage;
use std::sync::{Arc, Mutex, PoisonError};

/// Settings of [`BatchNorm1d`] and [`BatchNorm2d`], with PyTorch's defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormOptions {
    /// What is added to variances.
    pub eps: f64,
    /// What new statistics count in running ones; `None` for the plain average of all batches.
    pub momentum: Option<f64>,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Whether there are running statistics, by which evaluation normalises.
    pub track_running_stats: bool,
    /// Whether running statistics are of whole batches where these are cut into parts
    /// ([`micro_batch`](crate::micro_batch), [`accumulate`](crate::optim::accumulate)): written once, in the last
    /// part's forward in training mode, with the mean, the variance and the count of updates that the batch would
    /// have had. Each part is still normalised by its own. A batch of which a part is missing leaves them as they
    /// were. PyTorch has no such thing: parts are batches there.
    pub whole_batches: bool,
}

impl Default for BatchNormOptions {
    fn default() -> Self {
        Self {
            eps: 1e-5,
            momentum: Some(0.1),
            affine: true,
            track_running_stats: true,
            whole_batches: false,
        }
    }
}

/// Batch normalisation of `[N, C]` and `D` dimensions more: see [`BatchNorm1d`] and [`BatchNorm2d`].
///
/// In training mode by the statistics of the batch, which running ones take up: those are written once for
/// each forward that is evaluated, however often a step computes it, and not at all where a guard stops the
/// step. In evaluation mode by the running ones.
#[derive(Debug, Clone, Module)]
pub struct BatchNorm<const D: usize> {
    /// `[C]`, ones at first.
    pub weight: Option<Parameter>,
    /// `[C]`, zeros at first.
    pub bias: Option<Parameter>,
    /// `[C]`, zeros at first.
    pub running_mean: Option<Buffer>,
    /// `[C]`, ones at first: of unbiased variances.
    pub running_var: Option<Buffer>,
    /// How many batches running statistics are of, as an `F32`.
    pub num_batches_tracked: Option<Buffer>,
    mode: Mode,
    #[module(skip)]
    options: BatchNormOptions,
    #[module(skip)]
    channels: usize,
    #[module(skip)]
    gathered: Arc<Mutex<Gathered>>,
}

/// What parts of a batch have so far.
#[derive(Debug, Default)]
struct Gathered {
    /// The batch, and the part that came last.
    of: Option<(Arc<()>, usize)>,
    /// How many forwards that part had.
    forwards: usize,
    /// Of each forward of a part, the statistics of all parts.
    parts: Vec<Vec<Statistics>>,
}

impl Gathered {
    /// Takes in those of a part; answers those of all parts with the last.
    fn add(&mut self, part: &MicroBatch, new: Statistics) -> Option<Vec<Statistics>> {
        let same = |(batch, _): &(Arc<()>, usize)| Arc::ptr_eq(batch, &part.batch);
        if !self.of.as_ref().is_some_and(same) {
            *self = Self::default();
        }
        if self
            .of
            .as_ref()
            .is_none_or(|&(_, index)| index != part.index)
        {
            self.of = Some((Arc::clone(&part.batch), part.index));
            self.forwards = 0;
        }
        if self.parts.len() <= self.forwards {
            self.parts.push(Vec::new());
        }
        let parts = &mut self.parts[self.forwards];
        self.forwards += 1;
        parts.push(new);
        let is_whole = part.index + 1 == part.count && parts.len() == part.count;
        is_whole.then(|| std::mem::take(parts))
    }
}

/// Of a micro-batch: mean and biased variance of each channel, and how many elements that has.
#[derive(Debug, Clone)]
struct Statistics {
    mean: Tensor,
    var: Tensor,
    count: f64,
}

impl Statistics {
    /// Those of all elements together.
    fn pooled(parts: &[Self]) -> Result<Self> {
        let count: f64 = parts.iter().map(|part| part.count).sum();
        let average = |of: &dyn Fn(&Self) -> Result<Tensor>| {
            let shares = parts
                .iter()
                .map(|part| of(part)?.mul_scalar(part.count / count));
            let sum = shares.reduce(|a, b| a?.add(&b?));
            sum.unwrap_or_else(|| Err(Error::Internal("statistics of no batch".into())))
        };
        let mean = average(&|part| Ok(part.mean.clone()))?;
        // What is within micro-batches, and between them.
        let var = average(&|part| part.var.add(&part.mean.sub(&mean)?.square()?))?;
        Ok(Self { mean, var, count })
    }
}

/// `torch.nn.BatchNorm1d`: `[N, C]` or `[N, C, L]`.
pub type BatchNorm1d = BatchNorm<1>;
/// `torch.nn.BatchNorm2d`: `[N, C, H, W]`.
///
/// ```
/// use highwater::nn::{BatchNorm2d, BatchNormOptions};
/// use highwater::prelude::*;
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let norm = BatchNorm2d::new(&engine, 8, BatchNormOptions::default())?;
/// let x = Tensor::randn(&engine, [2, 8, 4, 4])?;
/// assert_eq!(norm.forward(&x)?.dims(), [2, 8, 4, 4]);
/// norm.eval();
/// norm.forward(&x)?;
/// # Ok(())
/// # }
/// ```
pub type BatchNorm2d = BatchNorm<2>;

impl<const D: usize> BatchNorm<D> {
    /// Weight one, bias zero, running statistics of mean 0 and variance 1.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for no channels, an `eps` that is no `f32` above 0 or a momentum that is not
    /// from 0 to 1; [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, channels: usize, options: BatchNormOptions) -> Result<Self> {
        super::layers::check_norm("batch_norm", channels, options.eps)?;
        if let Some(momentum) = options.momentum.filter(|m| !(0.0..=1.0).contains(m)) {
            let message = format!("batch_norm: momentum must be from 0 to 1, not {momentum}");
            return Err(usage_error(message, Location::caller()));
        }
        let (affine, track) = (options.affine, options.track_running_stats);
        let ones = |x: &mut [f32]| x.fill(1.0);
        let parameter = |fill: fn(&mut [f32])| Parameter::new(engine, [channels], fill);
        let buffer = |fill: fn(&mut [f32])| Buffer::new(engine, [channels], fill);
        Ok(Self {
            weight: affine.then(|| parameter(ones)).transpose()?,
            bias: affine.then(|| parameter(|_| {})).transpose()?,
            running_mean: track.then(|| buffer(|_| {})).transpose()?,
            running_var: track.then(|| buffer(ones)).transpose()?,
            num_batches_tracked: track
                .then(|| Buffer::new(engine, [0; 0], |_| {}))
                .transpose()?,
            mode: Mode::default(),
            options,
            channels,
            gathered: Arc::default(),
        })
    }

    /// The same shape.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for another number of channels or dimensions; [`crate::Error::Op`] where a
    /// channel has no more than one element in training mode.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let rank = x.shape().rank();
        let fits = rank == 2 + D || (D == 1 && rank == 2);
        if !fits || x.dims()[1] != self.channels {
            let (channels, dims) = (self.channels, ["", ", L", ", H, W", ", D, H, W"][D.min(3)]);
            let message = format!(
                "batch_norm: an input [N, {channels}{dims}] is needed, not {}",
                x.shape()
            );
            return Err(usage_error(message, Location::caller()));
        }
        let affine = self.weight.as_deref().zip(self.bias.as_deref());
        let eps = self.options.eps;
        let running = self.running_mean.as_ref().zip(self.running_var.as_ref());
        match running {
            Some((mean, var)) if !self.mode.is_training() => {
                x.batch_norm_inference((mean, var), affine, eps)
            }
            _ => {
                let [y, mean, var] = x.batch_norm(affine, eps)?;
                if let Some(running) = running.filter(|_| self.mode.is_training()) {
                    let count = (x.shape().numel() / self.channels) as f64;
                    self.take_up(running, &Statistics { mean, var, count })?;
                }
                Ok(y)
            }
        }
    }

    /// Has running statistics take up those of a micro-batch, if it is the last of a batch.
    #[track_caller]
    fn take_up(&self, running: (&Buffer, &Buffer), new: &Statistics) -> Result<()> {
        let part = current_micro_batch().filter(|part| part.count > 1);
        let Some(part) = part.filter(|_| self.options.whole_batches) else {
            return self.track(running, new);
        };
        // What is held here is computed, and no part of a graph is kept for it.
        let new = Statistics {
            mean: new.mean.detach()?,
            var: new.var.detach()?,
            count: new.count,
        };
        // Whoever panicked has left whole statistics.
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(whole) = gathered.add(&part, new) else {
            return Ok(());
        };
        drop(gathered);
        self.track(running, &Statistics::pooled(&whole)?)
    }

    /// Has running statistics take up those of a batch.
    #[track_caller]
    fn track(
        &self,
        (running_mean, running_var): (&Buffer, &Buffer),
        Statistics { mean, var, count }: &Statistics,
    ) -> Result<()> {
        let correction = count / (count - 1.0);
        let Some(batches) = &self.num_batches_tracked else {
            return Ok(());
        };
        let seen = batches.add_scalar(1.0)?.detach()?;
        batches.assign(&seen)?;
        for (running, new, correction) in
            [(running_mean, mean, 1.0), (running_var, var, correction)]
        {
            let next = if let Some(momentum) = self.options.momentum {
                let op = RunningAverage {
                    momentum,
                    correction,
                };
                Tensor::apply_one(op, &[running, new])?
            } else {
                let away = new.mul_scalar(correction)?.sub(running)?;
                running.add(&away.div(&seen)?)?
            };
            running.assign(&next)?;
        }
        Ok(())
    }
}

/// `torch.nn.GroupNorm`: `[N, C, ..]`, by the statistics of each group of channels of a sample.
#[derive(Debug, Clone, Module)]
pub struct GroupNorm {
    /// `[C]`, ones at first.
    pub weight: Option<Parameter>,
    /// `[C]`, zeros at first.
    pub bias: Option<Parameter>,
    #[module(skip)]
    groups: usize,
    #[module(skip)]
    eps: f64,
}

impl GroupNorm {
    /// Weight one and bias zero, if `affine`. `channels` must be a multiple of `groups`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for other groups, no channels or an `eps` that is no `f32` above 0;
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(
        engine: &Engine,
        groups: usize,
        channels: usize,
        eps: f64,
        affine: bool,
    ) -> Result<Self> {
        super::layers::check_norm("group_norm", channels, eps)?;
        if groups == 0 || !channels.is_multiple_of(groups) {
            let message = format!(
                "group_norm: channels must be a multiple of groups, not {channels} of {groups}"
            );
            return Err(usage_error(message, Location::caller()));
        }
        let weight = affine.then(|| Parameter::new(engine, [channels], |w| w.fill(1.0)));
        let bias = affine.then(|| Parameter::new(engine, [channels], |_| {}));
        Ok(Self {
            weight: weight.transpose()?,
            bias: bias.transpose()?,
            groups,
            eps,
        })
    }

    /// The same shape.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the channels differ.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let affine = self.weight.as_deref().zip(self.bias.as_deref());
        x.group_norm(self.groups, affine, self.eps)
    }
}

/// `torch.nn.InstanceNorm2d` without running statistics: `[N, C, H, W]` or `[C, H, W]`, by the statistics
/// of each channel of a sample.
#[derive(Debug, Clone, Module)]
pub struct InstanceNorm2d {
    /// `[C]`, ones at first.
    pub weight: Option<Parameter>,
    /// `[C]`, zeros at first.
    pub bias: Option<Parameter>,
    #[module(skip)]
    eps: f64,
}

impl InstanceNorm2d {
    /// Weight one and bias zero, if `affine` (PyTorch's default is not).
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for no channels or an `eps` that is no `f32` above 0;
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, channels: usize, eps: f64, affine: bool) -> Result<Self> {
        let norm = GroupNorm::new(engine, channels, channels, eps, affine)?;
        let GroupNorm { weight, bias, .. } = norm;
        Ok(Self { weight, bias, eps })
    }

    /// The same shape.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the channels differ, or a channel is empty.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let affine = self.weight.as_deref().zip(self.bias.as_deref());
        let batch = x.batched(4)?;
        batch.instance_norm(affine, self.eps)?.unbatched(x)
    }
}
