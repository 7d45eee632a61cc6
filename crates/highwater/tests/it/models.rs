//! Sample models: small, but each with a structure of its own.

use highwater::nn::{CausalSelfAttention, Dropout, Embedding, LayerNorm, Linear};
use highwater::{Engine, Module, Parameter, Result, Tensor, checkpoint, scope};

/// Numbers that depend on a seed alone (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn tokens(&mut self, count: usize, end: usize) -> Vec<u32> {
        (0..count).map(|_| self.below(end) as u32).collect()
    }

    /// Between -1 and 1.
    pub(crate) fn values(&mut self, count: usize) -> Vec<f32> {
        let one = |bits: u64| (bits >> 40) as f32 / (1_u64 << 23) as f32 - 1.0;
        (0..count).map(|_| one(self.next())).collect()
    }
}

/// A model with its data.
pub(crate) trait Model {
    /// The losses of the `index`-th batch of `rows` rows, in the order in which backward is called.
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>>;

    /// The parameters of each optimizer.
    fn sets(&self) -> Vec<Vec<Parameter>>;
}

/// A kind of model.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) make: fn(&Engine) -> Result<Box<dyn Model>>,
    /// Whether there are enough layers for the planner to find many plans.
    pub(crate) deep: bool,
}

const fn sample(
    name: &'static str,
    deep: bool,
    make: fn(&Engine) -> Result<Box<dyn Model>>,
) -> Sample {
    Sample { name, make, deep }
}

pub(crate) const SMALL_GPT: Sample = sample("small gpt", true, |e| {
    Ok(Box::new(Gpt::new(e, GptOptions { blocks: 3, ..GPT })?))
});
pub(crate) const DEEP_TIED_GPT: Sample = sample("deep tied gpt", true, |e| {
    Ok(Box::new(Gpt::new(
        e,
        GptOptions {
            blocks: 12,
            tied: true,
            ..GPT
        },
    )?))
});
pub(crate) const PINNED_GPT: Sample = sample("gpt of checkpoints", false, |e| {
    Ok(Box::new(Gpt::new(
        e,
        GptOptions {
            blocks: 3,
            pinned: true,
            ..GPT
        },
    )?))
});
pub(crate) const SHARED_BLOCK: Sample = sample("one block six times", true, |e| {
    Ok(Box::new(SharedBlock::new(e)?))
});
pub(crate) const TWO_OPTIMIZERS: Sample = sample("two optimizers", true, |e| {
    Ok(Box::new(TwoOptimizers(Gpt::new(
        e,
        GptOptions { blocks: 2, ..GPT },
    )?)))
});
pub(crate) const TWO_LOSSES: Sample =
    sample("two losses", true, |e| Ok(Box::new(TwoLosses::new(e)?)));
pub(crate) const SKIPS: Sample = sample("skips", true, |e| Ok(Box::new(Skips::new(e)?)));
pub(crate) const DENSE: Sample = sample("dense", false, |e| Ok(Box::new(Dense::new(e)?)));

/// All but the random graphs.
pub(crate) const SAMPLES: [Sample; 8] = [
    SMALL_GPT,
    DEEP_TIED_GPT,
    PINNED_GPT,
    SHARED_BLOCK,
    TWO_OPTIMIZERS,
    TWO_LOSSES,
    SKIPS,
    DENSE,
];

const VOCABULARY: usize = 50;
const LENGTH: usize = 16;
const WIDTH: usize = 32;

#[derive(Module)]
struct Block {
    ln_1: LayerNorm,
    attn: CausalSelfAttention,
    ln_2: LayerNorm,
    fc: Linear,
    proj: Linear,
    dropout: Dropout,
}

impl Block {
    fn new(e: &Engine) -> Result<Self> {
        Ok(Self {
            ln_1: LayerNorm::new(e, WIDTH, 1e-5)?,
            attn: CausalSelfAttention::new(e, WIDTH, 2, 0.1)?,
            ln_2: LayerNorm::new(e, WIDTH, 1e-5)?,
            fc: Linear::new(e, WIDTH, 4 * WIDTH, true)?,
            proj: Linear::new(e, 4 * WIDTH, WIDTH, true)?,
            dropout: Dropout::new(0.1),
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.add(&self.attn.forward(&self.ln_1.forward(x)?)?)?;
        let hidden = self.fc.forward(&self.ln_2.forward(&x)?)?.gelu_tanh()?;
        x.add(&self.dropout.forward(&self.proj.forward(&hidden)?)?)
    }
}

#[derive(Clone, Copy)]
struct GptOptions {
    blocks: usize,
    /// The head is the embedding.
    tied: bool,
    /// Each block is a `checkpoint`.
    pinned: bool,
}

const GPT: GptOptions = GptOptions {
    blocks: 1,
    tied: false,
    pinned: false,
};

#[derive(Module)]
struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    dropout: Dropout,
    blocks: Vec<Block>,
    ln_f: LayerNorm,
    head: Parameter,
    #[module(skip)]
    options: GptOptions,
}

impl Gpt {
    fn new(e: &Engine, options: GptOptions) -> Result<Self> {
        let tokens = Embedding::new(e, VOCABULARY, WIDTH)?;
        let head = if options.tied {
            tokens.weight.clone()
        } else {
            Parameter::normal(e, [VOCABULARY, WIDTH], 0.2)?
        };
        Ok(Self {
            tokens,
            positions: Embedding::new(e, LENGTH, WIDTH)?,
            dropout: Dropout::new(0.1),
            blocks: (0..options.blocks)
                .map(|_| Block::new(e))
                .collect::<Result<_>>()?,
            ln_f: LayerNorm::new(e, WIDTH, 1e-5)?,
            head,
            options,
        })
    }

    fn hidden(&self, x: &Tensor) -> Result<Tensor> {
        let embedded = self.tokens.forward(x)?.add(&self.positions.weight)?;
        let mut h = self.dropout.forward(&embedded)?;
        for (i, block) in self.blocks.iter().enumerate() {
            let forward = |x: &Tensor| scope(&format!("h.{i}"), || block.forward(x));
            h = if self.options.pinned {
                checkpoint(forward, &h)?
            } else {
                forward(&h)?
            };
        }
        self.ln_f.forward(&h)
    }
}

impl Model for Gpt {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        let engine = self.head.engine();
        let mut random = Random(index);
        let mut batch =
            || engine.indices(&random.tokens(rows * LENGTH, VOCABULARY), [rows, LENGTH]);
        let (x, y) = (batch()?, batch()?);
        let h = self.hidden(&x)?;
        let loss = if self.options.tied {
            h.linear_cross_entropy(&self.head, &y)?
        } else {
            h.linear(&self.head, None)?.cross_entropy(&y)?
        };
        Ok(vec![loss])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}

/// One loss, but embeddings and the rest belong to different optimizers.
struct TwoOptimizers(Gpt);

impl Model for TwoOptimizers {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        self.0.losses(index, rows)
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        let (embeddings, rest) = self
            .0
            .named_parameters()
            .into_iter()
            .partition::<Vec<_>, _>(|(name, _)| name.starts_with("tokens") || name == "head");
        [embeddings, rest]
            .map(|set| set.into_iter().map(|(_, p)| p).collect())
            .into()
    }
}

/// Random values of a batch, `[rows, LENGTH, WIDTH]`.
fn values(engine: &Engine, index: u64, rows: usize) -> Result<Tensor> {
    let values = Random(index).values(rows * LENGTH * WIDTH);
    engine.tensor(&values, [rows, LENGTH, WIDTH])
}

fn square_mean(x: &Tensor) -> Result<Tensor> {
    x.mul(x)?.mean()
}

/// One block applied again and again.
#[derive(Module)]
struct SharedBlock {
    ln: LayerNorm,
    fc: Linear,
    proj: Linear,
    dropout: Dropout,
}

impl SharedBlock {
    fn new(e: &Engine) -> Result<Self> {
        Ok(Self {
            ln: LayerNorm::new(e, WIDTH, 1e-5)?,
            fc: Linear::new(e, WIDTH, 2 * WIDTH, true)?,
            proj: Linear::new(e, 2 * WIDTH, WIDTH, true)?,
            dropout: Dropout::new(0.1),
        })
    }
}

impl Model for SharedBlock {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        let x = values(self.ln.weight.engine(), index, rows)?;
        let mut h = x.clone();
        for _ in 0..6 {
            let hidden = self.fc.forward(&self.ln.forward(&h)?)?.gelu()?;
            h = h.add(&self.dropout.forward(&self.proj.forward(&hidden)?)?)?;
        }
        Ok(vec![square_mean(&h.add(&x)?)?])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}

/// Two heads on one trunk; backward is called on each loss.
#[derive(Module)]
struct TwoLosses {
    trunk: Vec<Linear>,
    heads: Vec<Linear>,
    dropout: Dropout,
}

impl TwoLosses {
    fn new(e: &Engine) -> Result<Self> {
        let linear = |_| Linear::new(e, WIDTH, WIDTH, true);
        Ok(Self {
            trunk: (0..10).map(linear).collect::<Result<_>>()?,
            heads: (0..2).map(linear).collect::<Result<_>>()?,
            dropout: Dropout::new(0.2),
        })
    }
}

impl Model for TwoLosses {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        let x = values(self.trunk[0].weight.engine(), index, rows)?;
        let mut h = x.clone();
        for linear in &self.trunk {
            h = self.dropout.forward(&linear.forward(&h)?.gelu()?)?;
        }
        let copy = square_mean(&self.heads[0].forward(&h)?.sub(&x)?)?;
        let negate = square_mean(&self.heads[1].forward(&h)?.tanh()?.add(&x)?)?;
        Ok(vec![copy, negate])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}

/// Narrower and narrower, then wider again, with a sum across at each width, as in a U-Net.
#[derive(Module)]
struct Skips {
    down: Vec<Linear>,
    up: Vec<Linear>,
    dropout: Dropout,
}

impl Skips {
    fn new(e: &Engine) -> Result<Self> {
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
            dropout: Dropout::new(0.1),
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
struct Dense {
    layers: Vec<Linear>,
    dropout: Dropout,
}

impl Dense {
    fn new(e: &Engine) -> Result<Self> {
        let layer = |i: usize| Linear::new(e, (i + 1) * WIDTH, WIDTH, true);
        let layers = (0..5).map(layer).collect::<Result<_>>()?;
        Ok(Self {
            layers,
            dropout: Dropout::new(0.1),
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

/// A graph drawn at random: any value may be used again by anything later.
pub(crate) struct RandomGraph {
    pub(crate) seed: u64,
    weights: Vec<Parameter>,
}

impl RandomGraph {
    const NODES: usize = 30;

    pub(crate) fn new(e: &Engine, seed: u64) -> Result<Self> {
        let weight = |_| Parameter::normal(e, [WIDTH, WIDTH], 0.2);
        Ok(Self {
            seed,
            weights: (0..4).map(weight).collect::<Result<_>>()?,
        })
    }

    fn node(&self, random: &mut Random, values: &[Tensor]) -> Result<Tensor> {
        // The newest value half of the time, so that there is depth; else any.
        let pick = |random: &mut Random| match random.below(2) {
            0 => values[values.len() - 1].clone(),
            _ => values[random.below(values.len())].clone(),
        };
        let (x, y) = (pick(random), pick(random));
        match random.below(12) {
            0 | 1 => x.linear(&self.weights[random.below(self.weights.len())], None),
            2 => x.add(&y),
            3 => x.mul(&y)?.tanh(),
            4 => x.sub(&y)?.gelu(),
            5 => x.layer_norm(None, 1e-5),
            6 => x.dropout(0.25),
            7 => x.softmax(),
            8 => x.mul_scalar(0.7)?.relu(),
            9 => {
                let halves = x.chunk(2, 2)?;
                let sum = halves[0].mul(&halves[1])?.sum_dims(&[2], true)?;
                y.add(&sum.tanh()?)
            }
            10 => {
                let swapped = y
                    .reshape([y.dims()[0], LENGTH, 2, WIDTH / 2])?
                    .transpose(2, 3)?;
                x.mul(&swapped.reshape(x.shape().clone())?)?.sigmoid()
            }
            _ => {
                let first = x.narrow(1, 0, 1)?.expand(x.shape().clone())?;
                y.add(&first)
            }
        }
    }
}

impl Model for RandomGraph {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        // The same graph for every batch.
        let mut random = Random(self.seed);
        let mut all = vec![values(self.weights[0].engine(), index, rows)?];
        for weight in &self.weights {
            all.push(all[0].linear(weight, None)?);
        }
        for _ in 0..Self::NODES {
            all.push(self.node(&mut random, &all)?);
        }
        let last = all.iter().rev().take(3);
        let means = last.map(square_mean).collect::<Result<Vec<_>>>()?;
        Ok(vec![means[0].add(&means[1])?.add(&means[2])?])
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.weights.clone()]
    }
}
