//! The usual layers.

use super::adapter::{Adaptable, Base, Slot};
use super::float_rows::{each_row, in_f32, sum_of_squares};
use super::{Mode, Module, Visitor, join};
use crate::engine::Engine;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use crate::{self as highwater, Result};
use highwater_graph::Location;

/// `x · weightᵀ + bias`, as `torch.nn.Linear`: weight `[out, in]`, bias `[out]`.
/// It may have an adapter: [`add_adapters`](super::add_adapters).
#[derive(Clone)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    lora: Slot,
}

impl std::fmt::Debug for Linear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut told = f.debug_struct("Linear");
        told.field("weight", &self.weight).field("bias", &self.bias);
        self.lora.debug(&mut told);
        told.finish()
    }
}

impl Module for Linear {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        self.weight.visit(&join(path, "weight"), visitor);
        self.bias.visit(&join(path, "bias"), visitor);
        self.lora.visit(path, visitor);
        if self.weight.dims().len() == 2 {
            visitor.adaptable(path, &Adaptable(self));
        }
    }
}

impl Linear {
    /// Weight and bias uniform within `1 / sqrt(inputs)`, as in PyTorch.
    ///
    /// # Errors
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, inputs: usize, outputs: usize, bias: bool) -> Result<Self> {
        let bound = 1.0 / (inputs.max(1) as f32).sqrt();
        let weight = Parameter::uniform(engine, [outputs, inputs], bound)?;
        let bias = bias
            .then(|| Parameter::uniform(engine, [outputs], bound))
            .transpose()?;
        Ok(Self::of(weight, bias))
    }

    /// A layer of a weight `[out, in]` and a bias `[out]` that are there.
    pub fn of(weight: Parameter, bias: Option<Parameter>) -> Self {
        let lora = Slot::default();
        Self { weight, bias, lora }
    }

    /// `[.., in]` to `[.., out]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the width differs.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.linear(&self.weight, self.bias.as_deref())?;
        self.lora.forward(y, x, self)
    }
}

impl Base for Linear {
    fn slot(&self) -> &Slot {
        &self.lora
    }

    fn engine(&self) -> &Engine {
        self.weight.engine()
    }

    fn dims(&self) -> [usize; 2] {
        [self.weight.dims()[0], self.weight.dims()[1]]
    }

    fn bias(&self) -> Option<&Parameter> {
        self.bias.as_ref()
    }

    fn product(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, None)
    }

    fn exact_product(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&in_f32(&self.weight)?, None)
    }

    fn squares(&self) -> Result<Vec<f32>> {
        let mut sums = vec![0.0; self.dims()[0]];
        each_row(&self.weight, |i, row| sums[i] = sum_of_squares(row))?;
        Ok(sums)
    }

    fn dense(&self) -> Option<(&Parameter, bool)> {
        Some((&self.weight, false))
    }

    fn handle(&self) -> Box<dyn Base> {
        Box::new(self.clone())
    }
}

/// A linear map whose weight is `[in, out]`, as transformers' `Conv1D`, which GPT-2 is made of: read transposed, by
/// strides. It may have an adapter: [`add_adapters`](super::add_adapters).
#[derive(Debug, Clone)]
pub struct TransposedLinear {
    /// `[in, out]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Parameter,
    lora: Slot,
}

impl Module for TransposedLinear {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        self.weight.visit(&join(path, "weight"), visitor);
        self.bias.visit(&join(path, "bias"), visitor);
        self.lora.visit(path, visitor);
        visitor.adaptable(path, &Adaptable(self));
    }
}

impl TransposedLinear {
    /// A weight of normal deviates by `std`, and a bias of zeros, as GPT-2 begins.
    ///
    /// # Errors
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, inputs: usize, outputs: usize, std: f32) -> Result<Self> {
        Ok(Self {
            weight: Parameter::normal(engine, [inputs, outputs], std)?,
            bias: Parameter::new(engine, [outputs], |_| {})?,
            lora: Slot::default(),
        })
    }

    /// `[.., in]` to `[.., out]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the width differs.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.linear(&self.weight.transpose(0, 1)?, Some(&self.bias))?;
        self.lora.forward(y, x, self)
    }
}

impl Base for TransposedLinear {
    fn slot(&self) -> &Slot {
        &self.lora
    }

    fn engine(&self) -> &Engine {
        self.weight.engine()
    }

    fn dims(&self) -> [usize; 2] {
        [self.weight.dims()[1], self.weight.dims()[0]]
    }

    fn bias(&self) -> Option<&Parameter> {
        Some(&self.bias)
    }

    fn product(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight.transpose(0, 1)?, None)
    }

    fn exact_product(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&in_f32(&self.weight)?.transpose(0, 1)?, None)
    }

    fn squares(&self) -> Result<Vec<f32>> {
        let mut sums = vec![0.0; self.dims()[0]];
        each_row(&self.weight, |_, row| {
            for (sum, &x) in sums.iter_mut().zip(row) {
                *sum += f64::from(x) * f64::from(x);
            }
        })?;
        Ok(sums.into_iter().map(|sum| sum as f32).collect())
    }

    fn dense(&self) -> Option<(&Parameter, bool)> {
        Some((&self.weight, true))
    }

    fn handle(&self) -> Box<dyn Base> {
        Box::new(self.clone())
    }
}

/// A table of vectors, as `torch.nn.Embedding`: weight `[rows, width]`.
#[derive(Debug, Clone, Module)]
pub struct Embedding {
    /// `[rows, width]`.
    pub weight: Parameter,
}

impl Embedding {
    /// A table of standard normal deviates, as in PyTorch.
    ///
    /// # Errors
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, rows: usize, width: usize) -> Result<Self> {
        Ok(Self {
            weight: Parameter::normal(engine, [rows, width], 1.0)?,
        })
    }

    /// Indices `[..]` to `[.., width]`.
    ///
    /// # Errors
    /// [`crate::Error::Op`] unless the indices are U32 or I64.
    #[track_caller]
    pub fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        self.weight.embedding(indices)
    }
}

/// Normalises the last dimension, as `torch.nn.LayerNorm`: weight and bias `[width]`.
#[derive(Debug, Clone, Module)]
pub struct LayerNorm {
    /// `[width]`, ones at first.
    pub weight: Parameter,
    /// `[width]`, zeros at first.
    pub bias: Parameter,
    #[module(skip)]
    eps: f64,
}

impl LayerNorm {
    /// Weight one, bias zero.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a width of 0, or an `eps` that is no `f32` above 0;
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, width: usize, eps: f64) -> Result<Self> {
        check_norm("layer_norm", width, eps)?;
        let weight = Parameter::new(engine, [width], |w| w.fill(1.0))?;
        Ok(Self {
            weight,
            bias: Parameter::new(engine, [width], |_| {})?,
            eps,
        })
    }

    /// `[.., width]` to the same.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the width differs.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(Some((&self.weight, &self.bias)), self.eps)
    }
}

/// What every norm asks for.
#[track_caller]
pub(super) fn check_norm(name: &str, width: usize, eps: f64) -> Result<()> {
    if width == 0 {
        let message = format!("{name}: the width must be at least 1, not 0");
        return Err(usage_error(message, Location::caller()));
    }
    // Kernels add it to a variance in `f32`, where it must not vanish.
    let held = eps as f32;
    if !(held > 0.0 && held.is_finite()) {
        let message = format!(
            "{name}: eps must be a number above 0 that an f32 can hold, such as 1e-5, not {eps:?}"
        );
        return Err(usage_error(message, Location::caller()));
    }
    Ok(())
}

/// Divides the last dimension by the root of the mean of its squares, as `torch.nn.RMSNorm`: weight
/// `[width]`.
#[derive(Debug, Clone, Module)]
pub struct RmsNorm {
    /// `[width]`, ones at first.
    pub weight: Parameter,
    #[module(skip)]
    eps: f64,
}

impl RmsNorm {
    /// Weight one.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a width of 0, or an `eps` that is no `f32` above 0;
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn new(engine: &Engine, width: usize, eps: f64) -> Result<Self> {
        check_norm("rms_norm", width, eps)?;
        let weight = Parameter::new(engine, [width], |w| w.fill(1.0))?;
        Ok(Self { weight, eps })
    }

    /// `[.., width]` to the same.
    ///
    /// # Errors
    /// [`crate::Error::Op`] if the width differs.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.rms_norm(Some(&self.weight), self.eps)
    }
}

/// Zeroes elements in training mode, as `torch.nn.Dropout`.
#[derive(Debug, Clone, Module)]
pub struct Dropout {
    #[module(skip)]
    p: f64,
    mode: Mode,
}

impl Dropout {
    /// Drops with probability `p`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] unless `p` is from 0 to below 1.
    #[track_caller]
    pub fn new(p: f64) -> Result<Self> {
        if !(0.0..1.0).contains(&p) {
            let message = format!(
                "dropout: p, the probability that an element is dropped, must be a number from 0 up and below 1, \
                 not {p}"
            );
            return Err(usage_error(message, Location::caller()));
        }
        Ok(Self {
            p,
            mode: Mode::default(),
        })
    }

    /// The same shape. With `p` 0 or in evaluation mode, the tensor itself.
    ///
    /// # Errors
    /// [`crate::Error::Op`] unless it is of dtype F32.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.is_idle() {
            return Ok(x.clone());
        }
        x.dropout(self.p)
    }

    /// Whether nothing is dropped now.
    pub(super) fn is_idle(&self) -> bool {
        !self.mode.is_training() || self.p == 0.0
    }
}
