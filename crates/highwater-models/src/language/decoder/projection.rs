//! Projections of decoders: by a weight as it is, or held in few bits.

use highwater::nn::{Linear, Module, QuantizedLinear, Visitor};
use highwater::op::WeightFormat;
use highwater::{Engine, Parameter, Result, Tensor};

use crate::language::config::DecoderShape;

/// A linear layer.
#[derive(Debug)]
pub(super) enum Projection {
    /// Whose weight may train.
    Whole(Linear),
    /// Whose weight is frozen.
    Held(QuantizedLinear),
}

impl Module for Projection {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        match self {
            Self::Whole(layer) => layer.visit(path, visitor),
            Self::Held(layer) => layer.visit(path, visitor),
        }
    }
}

impl Projection {
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Whole(layer) => layer.forward(x),
            Self::Held(layer) => layer.forward(x),
        }
    }

    /// The layer whose weight is held in few bits.
    pub(super) fn held(&self) -> Option<&QuantizedLinear> {
        match self {
            Self::Whole(_) => None,
            Self::Held(layer) => Some(layer),
        }
    }
}

/// What parts of a model are made by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Maker<'a> {
    pub(super) engine: &'a Engine,
    pub(super) shape: &'a DecoderShape,
    /// How weights of projections are held, if not as they are.
    pub(super) format: Option<WeightFormat>,
}

impl Maker<'_> {
    /// A projection with weights as Llama's at the start, and a bias of zeros if there is one; held in few bits, of
    /// zeros.
    pub(super) fn project(self, [inputs, outputs]: [usize; 2], bias: bool) -> Result<Projection> {
        let engine = self.engine;
        let bias = bias.then(|| Parameter::new(engine, [outputs], |_| {}));
        let bias = bias.transpose()?;
        if let Some(format) = self.format {
            let mut layer = QuantizedLinear::zeros(engine, inputs, outputs, format)?;
            layer.bias = bias;
            return Ok(Projection::Held(layer));
        }
        let std = self.shape.initializer_range as f32;
        let weight = Parameter::normal(engine, [outputs, inputs], std)?;
        Ok(Projection::Whole(Linear::of(weight, bias)))
    }
}
