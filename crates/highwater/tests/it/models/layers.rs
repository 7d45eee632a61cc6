//! Layers in a row whose weights are large enough to move below memory.

use super::{Model, Random};
use highwater::nn::Linear;
use highwater::{Engine, Module, Parameter, Result, Tensor};

/// Linear layers of some widths, with `gelu` behind each.
pub(crate) struct Layers {
    engine: Engine,
    width: usize,
    pub(crate) linear: Vec<Linear>,
}

impl Layers {
    /// One layer between each two neighbours.
    pub(crate) fn new(engine: &Engine, widths: &[usize]) -> Result<Self> {
        let layer = |(i, pair): (usize, &[usize])| {
            let layer = Linear::new(engine, pair[0], pair[1], true)?;
            layer.weight.set_name(&format!("layer.{i}.weight"));
            Ok(layer)
        };
        Ok(Self {
            engine: engine.clone(),
            width: widths[0],
            linear: (widths.windows(2).enumerate().map(layer)).collect::<Result<_>>()?,
        })
    }

    /// The mean square of what comes out for so many rows of numbers.
    pub(crate) fn loss(&self, index: u64, rows: usize) -> Result<Tensor> {
        let values = Random(index).values(rows * self.width);
        let mut x = self.engine.tensor(&values, [rows, self.width])?;
        for layer in &self.linear {
            x = layer.forward(&x)?.gelu()?;
        }
        x.mul(&x)?.mean()
    }

    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        self.linear.iter().flat_map(Module::parameters).collect()
    }
}

impl Model for Layers {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        Ok(vec![self.loss(index, rows)?])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}
