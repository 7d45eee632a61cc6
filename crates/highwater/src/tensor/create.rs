//! New tensors that no data is given for: constants, ranges and random numbers.
//!
//! They are inputs, as those that data is given for: they stay until they are dropped. Random ones are drawn
//! when they are made, from the engine's numbers.

use super::Tensor;
use crate::Result;
use crate::engine::Engine;
use crate::error::usage_error;
use highwater_graph::{DType, Location, Op, Shape, Spec};
use highwater_ops::philox::{Deviates, fill_integers, fill_permutation};
use highwater_ops::{Full, numbers_to};
use smallvec::SmallVec;
use std::sync::Arc;

/// Numbers that are made at once.
const PIECE: usize = 1024;

impl Tensor {
    /// A tensor of `value` everywhere, as `torch.full`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a shape that no memory could hold, or a dtype whose elements are no numbers;
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn full(
        engine: &Engine,
        shape: impl Into<Shape>,
        value: f64,
        dtype: DType,
    ) -> Result<Self> {
        Self::numbers(engine, &shape.into(), dtype, Location::caller(), |_| value)
    }

    /// A tensor of zeros, as `torch.zeros`.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    #[track_caller]
    pub fn zeros(engine: &Engine, shape: impl Into<Shape>, dtype: DType) -> Result<Self> {
        Self::full(engine, shape, 0.0, dtype)
    }

    /// A tensor of ones, as `torch.ones`.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    #[track_caller]
    pub fn ones(engine: &Engine, shape: impl Into<Shape>, dtype: DType) -> Result<Self> {
        Self::full(engine, shape, 1.0, dtype)
    }

    /// `value` everywhere, of the shape, dtype and engine of this tensor, as `torch.full_like`.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    #[track_caller]
    pub fn full_like(&self, value: f64) -> Result<Self> {
        Self::full(self.engine(), self.shape().clone(), value, self.dtype())
    }

    /// Zeros, as `torch.zeros_like`.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Self> {
        self.full_like(0.0)
    }

    /// Ones, as `torch.ones_like`.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    #[track_caller]
    pub fn ones_like(&self) -> Result<Self> {
        self.full_like(1.0)
    }

    /// Standard normal deviates of the shape, dtype and engine of this tensor, as `torch.randn_like`.
    ///
    /// # Errors
    /// As [`Tensor::randn`]; [`crate::Error::Usage`] for a dtype that is not of floats.
    #[track_caller]
    pub fn randn_like(&self) -> Result<Self> {
        self.check_floats()?;
        Self::randn(self.engine(), self.shape().clone())?.to_dtype(self.dtype())
    }

    /// Numbers from 0 to below 1, as `torch.rand_like`.
    ///
    /// # Errors
    /// As [`Tensor::randn_like`].
    #[track_caller]
    pub fn rand_like(&self) -> Result<Self> {
        self.check_floats()?;
        Self::rand(self.engine(), self.shape().clone())?.to_dtype(self.dtype())
    }

    /// That random numbers can be of this tensor's dtype; before any are drawn.
    #[track_caller]
    fn check_floats(&self) -> Result<()> {
        if self.dtype().is_float() {
            return Ok(());
        }
        let what = format!(
            "random numbers like {}: expected a float type",
            self.dtype()
        );
        Err(usage_error(what, Location::caller()))
    }

    /// The numbers `start`, `start + step`, .. before `end`, as `torch.arange(start, end, step)`.
    ///
    /// # Errors
    /// As [`Tensor::full`]; [`crate::Error::Usage`] for a step that does not lead from `start` to `end`.
    #[track_caller]
    pub fn arange(engine: &Engine, start: f64, end: f64, step: f64, dtype: DType) -> Result<Self> {
        let location = Location::caller();
        let count = ((end - start) / step).ceil();
        if !(count >= 0.0 && count.is_finite()) {
            let message = format!("arange: no steps of {step} lead from {start} to {end}");
            return Err(usage_error(message, location));
        }
        let shape = Shape::from([count as usize]);
        Self::numbers(engine, &shape, dtype, location, |i| start + i as f64 * step)
    }

    /// `steps` numbers from `start` to `end`, both included, of `F32`, as `torch.linspace`.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    #[track_caller]
    pub fn linspace(engine: &Engine, start: f64, end: f64, steps: usize) -> Result<Self> {
        let step = (end - start) / steps.saturating_sub(1).max(1) as f64;
        // From both ends, so that both are met.
        let number = |i| {
            if i < steps.div_ceil(2) {
                start + step * i as f64
            } else {
                end - step * (steps - 1 - i) as f64
            }
        };
        let (shape, dtype) = (Shape::from([steps]), DType::F32);
        Self::numbers(engine, &shape, dtype, Location::caller(), number)
    }

    /// Ones on the diagonal of a matrix of zeros, as `torch.eye(rows, columns)`.
    ///
    /// # Errors
    /// As [`Tensor::full`].
    #[track_caller]
    pub fn eye(engine: &Engine, rows: usize, columns: usize, dtype: DType) -> Result<Self> {
        let one = |i: usize| f64::from(u8::from(i / columns == i % columns));
        let shape = Shape::from([rows, columns]);
        Self::numbers(engine, &shape, dtype, Location::caller(), one)
    }

    /// A tensor of `Bool`, copied.
    ///
    /// # Errors
    /// As [`Tensor::from_slice`].
    #[track_caller]
    pub fn from_bools(engine: &Engine, data: &[bool], shape: impl Into<Shape>) -> Result<Self> {
        let (shape, location) = (shape.into(), Location::caller());
        if shape.numel() != data.len() {
            let message = format!("{} elements do not make the shape {shape}", data.len());
            return Err(usage_error(message, location));
        }
        let number = |i: usize| f64::from(u8::from(data[i]));
        Self::numbers(engine, &shape, DType::Bool, location, number)
    }

    /// Uniform deviates of `F32`, at least 0 and below 1, from the engine's random numbers, as `torch.rand`.
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    #[track_caller]
    pub fn rand(engine: &Engine, shape: impl Into<Shape>) -> Result<Self> {
        Self::uniform(engine, shape, 0.0, 1.0)
    }

    /// Uniform deviates of `F32`, at least `low` and below `high`, from the engine's random numbers, as
    /// `torch.rand(shape) * (high - low) + low`.
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    #[track_caller]
    pub fn uniform(engine: &Engine, shape: impl Into<Shape>, low: f32, high: f32) -> Result<Self> {
        let width = high - low;
        Self::drawn(engine, &shape.into(), false, |x| x * width + low)
    }

    /// Normal deviates of `F32` of a mean and a standard deviation, from the engine's random numbers, as
    /// `torch.normal(mean, std, shape)`.
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    #[track_caller]
    pub fn normal(engine: &Engine, shape: impl Into<Shape>, mean: f32, std: f32) -> Result<Self> {
        Self::drawn(engine, &shape.into(), true, |x| x * std + mean)
    }

    /// Ones with probability `p`, else zeros, of `F32`, from the engine's random numbers, as
    /// `torch.bernoulli(torch.full(shape, p))`. Where each element has a probability of its own:
    /// [`Tensor::bernoulli_of`].
    ///
    /// # Errors
    /// As [`Tensor::randn`]; [`crate::Error::Usage`] for a probability that is none.
    #[track_caller]
    pub fn bernoulli(engine: &Engine, shape: impl Into<Shape>, p: f32) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            let message = format!("bernoulli: p must be from 0 to 1, got {p}");
            return Err(usage_error(message, Location::caller()));
        }
        let one = |x| if x < p { 1.0 } else { 0.0 };
        Self::drawn(engine, &shape.into(), false, one)
    }

    /// Ones, each with the probability that this tensor has for it, else zeros, of its dtype, from the engine's
    /// random numbers, as `torch.bernoulli(p)`. What is not from 0 to 1 counts as the nearer of both, and NaN as
    /// 0; PyTorch refuses them. No gradient flows to the probabilities.
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    #[track_caller]
    pub fn bernoulli_of(&self) -> Result<Self> {
        let drawn = Self::rand(self.engine(), self.shape().clone())?;
        let wide = match self.dtype() {
            DType::F64 => self.detach()?,
            _ => self.detach()?.to_dtype(DType::F32)?,
        };
        drawn
            .to_dtype(wide.dtype())?
            .lt(&wide)?
            .to_dtype(self.dtype())
    }

    /// The whole numbers below `count`, of `I64`, in an order from the engine's random numbers, as
    /// `torch.randperm`.
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    #[track_caller]
    pub fn randperm(engine: &Engine, count: usize) -> Result<Self> {
        let location = Location::caller();
        let spec = checked(&Shape::from([count]), DType::I64, location)?;
        let (seed, offset) = engine.lock().next_random();
        Self::filled(engine, spec, location, |own| {
            fill_permutation(seed, offset, bytemuck::cast_slice_mut(own));
        })
    }

    /// Whole numbers from `low` to below `high`, of `I64`, all as likely, from the engine's random numbers, as
    /// `torch.randint(low, high, shape)`.
    ///
    /// # Errors
    /// As [`Tensor::randn`]; [`crate::Error::Usage`] where `high` is not above `low`.
    #[track_caller]
    pub fn randint(engine: &Engine, low: i64, high: i64, shape: impl Into<Shape>) -> Result<Self> {
        let location = Location::caller();
        if high <= low {
            let message = format!("randint: high must be above low, got {low} and {high}");
            return Err(usage_error(message, location));
        }
        let spec = checked(&shape.into(), DType::I64, location)?;
        let (seed, offset) = engine.lock().next_random();
        Self::filled(engine, spec, location, |own| {
            fill_integers(seed, offset, (low, high), bytemuck::cast_slice_mut(own));
        })
    }

    /// Indices (I64) drawn from each row of weights, as `torch.multinomial(weights, num_samples, replacement)`:
    /// `[num_samples]` of `[K]`, `[N, num_samples]` of `[N, K]`. Weights need not add up to 1; what has none is
    /// not drawn where there is enough else. From the engine's random numbers, which have 24 bits: shares below
    /// `2^-24` are drawn too often or never.
    ///
    /// Without replacement each weight is divided by an exponential deviate, and the largest quotients are taken,
    /// as PyTorch does. With it, a number below the sum of the weights is looked up in their running sums: that
    /// compares `num_samples` times `K` elements of each row.
    ///
    /// PyTorch refuses rows of which the sum is 0, and weights below 0, infinite or NaN. Here values are not known
    /// yet: some index of the row is drawn from such a one.
    ///
    /// # Errors
    /// As [`Tensor::randn`]; [`crate::Error::Usage`] for a tensor that is no float, or not of one or two
    /// dimensions, for no samples, and for more than there are elements without replacement.
    #[track_caller]
    pub fn multinomial(&self, num_samples: usize, replacement: bool) -> Result<Self> {
        let (shape, rank) = (self.shape().clone(), self.shape().rank());
        let count = self.dims().last().copied().unwrap_or(0);
        let enough = num_samples > 0 && count > 0 && (replacement || num_samples <= count);
        if !self.dtype().is_float() || !(1..=2).contains(&rank) || !enough {
            let message = format!(
                "multinomial: {num_samples} samples of {} {shape} cannot be drawn{}: floats of one or two \
                 dimensions are needed, at least one sample, and no more than there are elements",
                self.dtype(),
                if replacement {
                    ""
                } else {
                    " without replacement"
                },
            );
            return Err(usage_error(message, Location::caller()));
        }
        let engine = self.engine();
        let weights = match self.dtype() {
            DType::F64 => self.detach()?,
            _ => self.detach()?.to_dtype(DType::F32)?,
        };
        // Of any size: sums do not overflow then.
        let largest = weights.amax(&[-1], true)?;
        let weights = weights.div(&largest)?.to_dtype(DType::F32)?;
        if !replacement {
            // `1 - x` is above 0, and so is the deviate, but for one draw of 2^24.
            let drawn = Self::rand(engine, shape)?;
            let deviates = drawn.neg()?.add_scalar(1.0)?.log()?.neg()?;
            let deviates = deviates.clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX))?;
            return Ok(weights.div(&deviates)?.topk(num_samples, -1, true)?.1);
        }
        let sums = weights.cumsum(-1)?;
        let mut rows = shape.dims().to_vec();
        rows[rank - 1] = num_samples;
        let total = sums.narrow(-1, count - 1, 1)?;
        let at = Self::rand(engine, rows)?.mul(&total)?;
        // The last one's sum is passed by nothing.
        let others = sums.narrow(-1, 0, count - 1)?;
        let passed = at.unsqueeze(-1)?.ge(&others.unsqueeze(-2)?)?;
        passed.sum_dims(&[-1], false)
    }

    /// Applies an operation without inputs: what makes something of nothing is told the engine. See
    /// [`Tensor::apply`].
    ///
    /// # Errors
    /// What the operation refuses.
    #[track_caller]
    pub fn generate(engine: &Engine, op: impl Op) -> Result<SmallVec<[Self; 2]>> {
        Self::apply_at(engine, Arc::new(op), &[], Location::caller())
    }

    /// A number as a tensor of no dimensions, for an operation of this tensor and a number: of its dtype where
    /// that is of the number's kind.
    #[track_caller]
    pub(crate) fn number_beside(&self, value: f64) -> Result<Self> {
        let location = Location::caller();
        let dtype = match self.dtype() {
            dtype if dtype.is_float() => dtype,
            _ if value.fract() != 0.0 => DType::F32,
            DType::Bool => DType::I64,
            dtype => dtype,
        };
        self.number_of(value, dtype, location)
    }

    /// A number as a tensor of no dimensions and of this tensor's dtype: truths are whatever is not 0, and whole
    /// numbers lose what is behind the point.
    #[track_caller]
    pub(crate) fn own_number(&self, value: f64) -> Result<Self> {
        let value = match self.dtype() {
            dtype if dtype.is_float() => value,
            DType::Bool => f64::from(u8::from(value != 0.0)),
            _ => value.trunc(),
        };
        self.number_of(value, self.dtype(), Location::caller())
    }

    fn number_of(&self, value: f64, dtype: DType, location: Location) -> Result<Self> {
        let shape = Shape::scalar();
        let full = Full {
            value,
            dtype,
            shape,
        };
        let mut made = Self::apply_at(&self.engine, Arc::new(full), &[], location)?;
        Ok(made.remove(0))
    }

    /// A tensor of a function of the flat index.
    fn numbers(
        engine: &Engine,
        shape: &Shape,
        dtype: DType,
        location: Location,
        number: impl Fn(usize) -> f64,
    ) -> Result<Self> {
        let spec = checked(shape, dtype, location)?;
        let width = dtype.element_bytes().unwrap_or(1) as usize;
        let mut written = Ok(());
        let tensor = Self::filled(engine, spec, location, |own| {
            let mut piece = [0.0; PIECE];
            for (k, to) in own.chunks_mut(PIECE * width).enumerate() {
                let piece = &mut piece[..to.len() / width];
                for (i, x) in piece.iter_mut().enumerate() {
                    *x = number(k * PIECE + i);
                }
                let result = numbers_to(piece, dtype, to);
                written = std::mem::replace(&mut written, Ok(())).and(result);
            }
        })?;
        written.map_err(|error| usage_error(error.to_string(), location))?;
        Ok(tensor)
    }

    /// A tensor of functions of deviates.
    #[track_caller]
    fn drawn(
        engine: &Engine,
        shape: &Shape,
        normal: bool,
        of: impl Fn(f32) -> f32,
    ) -> Result<Self> {
        let location = Location::caller();
        let spec = checked(shape, DType::F32, location)?;
        let (seed, offset) = engine.lock().next_random();
        Self::filled(engine, spec, location, |own| {
            let own: &mut [f32] = bytemuck::cast_slice_mut(own);
            Deviates::new(seed, offset, normal).fill(&mut *own);
            for x in own {
                *x = of(*x);
            }
        })
    }
}

/// A dense tensor of a shape that memory could hold, and of a dtype of numbers.
fn checked(shape: &Shape, dtype: DType, location: Location) -> Result<Spec> {
    let refused = |message: String| Err(usage_error(message, location));
    if !dtype.is_float() && !matches!(dtype, DType::I64 | DType::U32 | DType::U8 | DType::Bool) {
        return refused(format!("no tensor of {dtype} is made of numbers"));
    }
    match Shape::checked(shape) {
        Some(shape) => Ok(Spec::contiguous(dtype, shape)),
        None => refused(format!("no memory could hold the shape {shape}")),
    }
}
