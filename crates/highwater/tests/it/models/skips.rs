//! Models whose later layers read what earlier ones made: sums, views and concatenations.

use super::{LENGTH, Model, WIDTH, square_mean, values};
use highwater::nn::{Dropout, Linear};
use highwater::{Engine, Module, Parameter, Result, Tensor};

/// Narrower and narrower, then wider again, with a sum across at each width, as in a U-Net.
#[derive(Module)]
pub(super) struct Skips {
    down: Vec<Linear>,
    up: Vec<Linear>,
    dropout: Dropout,
}

impl Skips {
    pub(super) fn new(e: &Engine) -> Result<Self> {
        let widths: Vec<usize> = (0..5).map(|level| WIDTH >> level).collect();
        let pairs = || widths.windows(2);
        Ok(Self {
            down: pairs()
                .map(|w| Linear::new(e, w[0], w[1], true))
                .collect::<Result<_>>()?,
            up: pairs()
                .rev()
                .map(|w| Linear::new(e, w[1], w[0], true))
                .collect::<Result<_>>()?,
            dropout: Dropout::new(0.1)?,
        })
    }
}

impl Model for Skips {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        let x = values(self.down[0].weight.engine(), index, rows)?;
        let mut skips = vec![x.clone()];
        for linear in &self.down {
            let h = linear.forward(&skips[skips.len() - 1])?.tanh()?;
            skips.push(self.dropout.forward(&h)?);
        }
        let mut h = skips.pop().expect("there are levels");
        for (linear, skip) in self.up.iter().zip(skips.iter().rev()) {
            h = linear.forward(&h)?.gelu()?.add(skip)?.sigmoid()?;
        }
        Ok(vec![square_mean(&h.sub(&x)?)?])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}

/// Each layer sees all before it, as if concatenated: the parts of one weight are views of it. Its
/// result is gated by one column of itself.
#[derive(Module)]
pub(super) struct Dense {
    layers: Vec<Linear>,
    dropout: Dropout,
}

impl Dense {
    pub(super) fn new(e: &Engine) -> Result<Self> {
        let layer = |i: usize| Linear::new(e, (i + 1) * WIDTH, WIDTH, true);
        let layers = (0..5).map(layer).collect::<Result<_>>()?;
        Ok(Self {
            layers,
            dropout: Dropout::new(0.1)?,
        })
    }
}

impl Model for Dense {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        let x = values(self.layers[0].weight.engine(), index, rows)?;
        let mut features = vec![x.clone()];
        for layer in &self.layers {
            let mut sum =
                features[0].linear(&layer.weight.narrow(1, 0, WIDTH)?, layer.bias.as_deref())?;
            for (i, feature) in features.iter().enumerate().skip(1) {
                sum =
                    sum.add(&feature.linear(&layer.weight.narrow(1, i * WIDTH, WIDTH)?, None)?)?;
            }
            let gate = sum
                .narrow(2, 3, 1)?
                .sigmoid()?
                .expand([rows, LENGTH, WIDTH / 2])?;
            let halves = sum.chunk(2, 2)?;
            let gated = halves[0].mul(&gate)?.add(&halves[1].tanh()?)?;
            let wide = gated
                .transpose(1, 2)?
                .reshape([rows, WIDTH / 2, 1, LENGTH])?;
            let wide = wide
                .expand([rows, WIDTH / 2, 2, LENGTH])?
                .permute(&[0, 3, 1, 2])?;
            features.push(
                self.dropout
                    .forward(&wide.reshape([rows, LENGTH, WIDTH])?)?,
            );
        }
        Ok(vec![square_mean(&features[features.len() - 1].sub(&x)?)?])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}

/// As [`Skips`], but what goes across is concatenated.
#[derive(Module)]
pub(super) struct UNet {
    down: Vec<Linear>,
    up: Vec<Linear>,
    dropout: Dropout,
}

impl UNet {
    pub(super) fn new(e: &Engine) -> Result<Self> {
        let widths: Vec<usize> = (0..4).map(|level| WIDTH >> level).collect();
        let pairs = || widths.windows(2);
        Ok(Self {
            down: pairs()
                .map(|w| Linear::new(e, w[0], w[1], true))
                .collect::<Result<_>>()?,
            up: pairs()
                .rev()
                .map(|w| Linear::new(e, 2 * w[1], w[0], true))
                .collect::<Result<_>>()?,
            dropout: Dropout::new(0.1)?,
        })
    }
}

impl Model for UNet {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        let x = values(self.down[0].weight.engine(), index, rows)?;
        let (mut h, mut skips) = (x.clone(), Vec::new());
        for linear in &self.down {
            h = self.dropout.forward(&linear.forward(&h)?.gelu()?)?;
            skips.push(h.clone());
        }
        for (linear, skip) in self.up.iter().zip(skips.iter().rev()) {
            h = linear.forward(&Tensor::cat(&[skip, &h], 2)?)?.tanh()?;
        }
        // The two halves of the batch's positions change places.
        let halves = h.chunk(2, 1)?;
        let swapped = Tensor::cat(&[&halves[1], &halves[0]], 1)?;
        Ok(vec![square_mean(&swapped.sub(&x)?)?])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}

/// Each layer reads the concatenation of all before it, as in a DenseNet.
#[derive(Module)]
pub(super) struct Concatenated {
    layers: Vec<Linear>,
    dropout: Dropout,
}

impl Concatenated {
    const GROWTH: usize = 12;

    pub(super) fn new(e: &Engine) -> Result<Self> {
        let layer = |i: usize| Linear::new(e, WIDTH + i * Self::GROWTH, Self::GROWTH, true);
        Ok(Self {
            layers: (0..8).map(layer).collect::<Result<_>>()?,
            dropout: Dropout::new(0.1)?,
        })
    }
}

impl Model for Concatenated {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        let x = values(self.layers[0].weight.engine(), index, rows)?;
        let mut features = vec![x];
        for layer in &self.layers {
            let all = Tensor::cat(&features, 2)?.layer_norm(None, 1e-5)?;
            let new = self.dropout.forward(&layer.forward(&all.gelu()?)?)?;
            features.push(new);
        }
        Ok(vec![square_mean(&Tensor::cat(&features, 2)?)?])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}
