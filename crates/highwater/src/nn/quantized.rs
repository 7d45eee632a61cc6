//! Layers by weights in few bits.

use super::adapter::{Adaptable, Base, Slot};
use super::float_rows::{sum_of_squares, widen};
use super::{Linear, Module, Visitor, join};
use crate::Result;
use crate::engine::Engine;
use crate::error::usage_error;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use highwater_graph::{DType, Location};
use highwater_ops::WeightFormat;

/// `x · weightᵀ + bias` by a weight in few bits that is not trained, as `bitsandbytes.nn.Linear4bit` and
/// `Linear8bitLt`: what a large model that adapters are trained beside is held in. The weight is decoded where
/// products pack it, and never there as a whole; gradients flow to `x`.
///
/// ```
/// use highwater::nn::{Linear, QuantizedLinear};
/// use highwater::{op::WeightFormat, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let linear = Linear::new(&engine, 128, 64, false)?;
/// let held = QuantizedLinear::quantize(&linear, WeightFormat::Nf4)?;
/// let x = Tensor::randn(&engine, [3, 128])?;
/// assert_eq!(held.forward(&x)?.dims(), [3, 64]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct QuantizedLinear {
    /// Codes, `U8` `[out, row_bytes]`: see [`WeightFormat::row_bytes`].
    pub weight: Parameter,
    /// What they are shares of, `F32` `[out, scales]`: see [`WeightFormat::scales`].
    pub weight_scale: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    format: WeightFormat,
    inputs: usize,
    lora: Slot,
}

impl Module for QuantizedLinear {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        self.weight.visit(&join(path, "weight"), visitor);
        self.weight_scale
            .visit(&join(path, "weight_scale"), visitor);
        self.bias.visit(&join(path, "bias"), visitor);
        self.lora.visit(path, visitor);
        visitor.adaptable(path, &Adaptable(self));
    }
}

impl QuantizedLinear {
    /// A weight `[out, in]`, of which `row` is asked for one row after the other: no more of it than that is
    /// there in `F32`. Without a bias.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a shape that no memory could hold; [`crate::Error::State`] if there is no
    /// room.
    #[track_caller]
    pub fn new(
        engine: &Engine,
        inputs: usize,
        outputs: usize,
        format: WeightFormat,
        row: impl FnMut(usize, &mut [f32]),
    ) -> Result<Self> {
        let held = Self::zeros(engine, inputs, outputs, format)?;
        if !engine.is_dry_run() {
            held.fill(row)?;
        }
        Ok(held)
    }

    /// A weight of zeros, to be filled. Without a bias.
    ///
    /// # Errors
    /// As [`QuantizedLinear::new`].
    #[track_caller]
    pub fn zeros(
        engine: &Engine,
        inputs: usize,
        outputs: usize,
        format: WeightFormat,
    ) -> Result<Self> {
        let (bytes, per_row) = (format.row_bytes(inputs), WeightFormat::scales(inputs));
        Ok(Self {
            weight: Parameter::frozen(engine, DType::U8, [outputs, bytes], |_| {})?,
            weight_scale: Parameter::frozen(engine, DType::F32, [outputs, per_row], |_| {})?,
            bias: None,
            format,
            inputs,
            lora: Slot::default(),
        })
    }

    /// Holds another weight, of which `row` is asked for one row after the other.
    ///
    /// # Errors
    /// As [`Parameter::with_bytes_mut`](crate::Parameter::with_bytes_mut).
    #[track_caller]
    pub fn fill(&self, mut row: impl FnMut(usize, &mut [f32])) -> Result<()> {
        let (bytes, per_row) = (self.weight.dims()[1], self.weight_scale.dims()[1]);
        self.weight.with_bytes_mut(|codes| {
            self.weight_scale.with_values_mut(|scales| {
                let mut values = vec![0.0; self.inputs];
                let rows = codes.chunks_exact_mut(bytes.max(1));
                let rows = rows.zip(scales.chunks_exact_mut(per_row.max(1)));
                for (i, (codes, scales)) in rows.enumerate() {
                    row(i, &mut values);
                    self.format.quantize(&values, codes, scales);
                }
            })
        })?
    }

    /// Reads the weight as it is held, one row after the other.
    fn each_row(&self, mut read: impl FnMut(usize, &[f32])) -> Result<()> {
        let (bytes, per_row) = (self.weight.dims()[1], self.weight_scale.dims()[1]);
        let scales = self.weight_scale.to_vec::<f32>()?;
        self.weight.with_bytes(|codes| {
            let mut values = vec![0.0; self.inputs];
            let rows = codes.chunks_exact(bytes.max(1));
            let rows = rows.zip(scales.chunks_exact(per_row.max(1)));
            for (i, (codes, scales)) in rows.enumerate() {
                self.format.dequantize(codes, scales, &mut values);
                read(i, &values);
            }
        })
    }

    /// The shape of the weight as it was: `[out, in]`.
    pub fn weight_shape(&self) -> [usize; 2] {
        [self.weight.dims()[0], self.inputs]
    }

    /// The weight of a layer in few bits, with its bias, which stays what it is.
    ///
    /// # Errors
    /// As [`QuantizedLinear::new`] and [`Parameter::with_bytes`]; [`crate::Error::Usage`] for a weight of another
    /// rank than 2, or of whole numbers.
    #[track_caller]
    pub fn quantize(linear: &Linear, format: WeightFormat) -> Result<Self> {
        let weight = &linear.weight;
        let dtype = weight.dtype();
        let (&[outputs, inputs], true) = (weight.dims(), dtype.is_float()) else {
            let got = format!("{dtype} {}", weight.shape());
            let message = format!("quantize: a weight is floats of [out, in], not {got}");
            return Err(usage_error(message, Location::caller()));
        };
        let mut held = weight.with_bytes(|bytes| {
            Self::new(weight.engine(), inputs, outputs, format, |i, row| {
                let width = bytes.len() / outputs.max(1);
                widen(dtype, &bytes[i * width..][..width], row);
            })
        })??;
        held.bias.clone_from(&linear.bias);
        Ok(held)
    }

    /// How the weight is held.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// `[.., in]` to `[.., out]`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if the width differs.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // Rows of odd widths in NF4 have the bytes of the next even ones.
        if x.dims().last() != Some(&self.inputs) {
            let message = format!(
                "quantized_linear: an input [.., {}] is needed, not {}",
                self.inputs,
                x.shape()
            );
            return Err(usage_error(message, Location::caller()));
        }
        let y = x.quantized_linear(&self.weight, &self.weight_scale, self.format)?;
        let y = match &self.bias {
            Some(bias) if bias.dtype() == y.dtype() => y.add(bias)?,
            Some(bias) => y.add(&bias.to_dtype(y.dtype())?)?,
            None => y,
        };
        self.lora.forward(y, x, self)
    }
}

impl Base for QuantizedLinear {
    fn slot(&self) -> &Slot {
        &self.lora
    }

    fn engine(&self) -> &Engine {
        self.weight.engine()
    }

    fn dims(&self) -> [usize; 2] {
        self.weight_shape()
    }

    fn bias(&self) -> Option<&Parameter> {
        self.bias.as_ref()
    }

    fn product(&self, x: &Tensor) -> Result<Tensor> {
        x.quantized_linear(&self.weight, &self.weight_scale, self.format())
    }

    fn exact_product(&self, x: &Tensor) -> Result<Tensor> {
        self.product(x)
    }

    fn squares(&self) -> Result<Vec<f32>> {
        let mut sums = vec![0.0; self.dims()[0]];
        self.each_row(|i, row| sums[i] = sum_of_squares(row))?;
        Ok(sums)
    }

    fn dense(&self) -> Option<(&Parameter, bool)> {
        None
    }

    fn handle(&self) -> Box<dyn Base> {
        Box::new(self.clone())
    }
}
