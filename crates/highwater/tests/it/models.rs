//! Sample models: small, but each with a structure of its own.

mod layers;
mod random_graph;
mod skips;

use highwater::nn::{CausalSelfAttention, Dropout, Embedding, LayerNorm, Linear};
use highwater::{Engine, Module, Parameter, Result, Tensor, checkpoint, scope};
pub(crate) use layers::Layers;
pub(crate) use random_graph::{LARGE_RANDOM_GRAPH, random_graph};
use skips::{Concatenated, Dense, Skips, UNet};

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

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
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
pub(crate) const UNET: Sample = sample("u-net", true, |e| Ok(Box::new(UNet::new(e)?)));
pub(crate) const CONCATENATED: Sample = sample("concatenated", true, |e| {
    Ok(Box::new(Concatenated::new(e)?))
});
pub(crate) const LOSS_AT_EACH_DEPTH: Sample = sample("loss at each depth", true, |e| {
    Ok(Box::new(LossAtEachDepth::new(e)?))
});

/// All but the random graphs.
pub(crate) const SAMPLES: [Sample; 11] = [
    SMALL_GPT,
    DEEP_TIED_GPT,
    PINNED_GPT,
    SHARED_BLOCK,
    TWO_OPTIMIZERS,
    TWO_LOSSES,
    SKIPS,
    DENSE,
    UNET,
    CONCATENATED,
    LOSS_AT_EACH_DEPTH,
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
            dropout: Dropout::new(0.1)?,
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
            dropout: Dropout::new(0.1)?,
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
            dropout: Dropout::new(0.1)?,
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
            dropout: Dropout::new(0.2)?,
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

/// A loss after each of some layers, all through one head that is the transposed embedding; the
/// second half of the layers has the weights of the first.
#[derive(Module)]
struct LossAtEachDepth {
    tokens: Embedding,
    layers: Vec<Linear>,
    dropout: Dropout,
}

impl LossAtEachDepth {
    fn new(e: &Engine) -> Result<Self> {
        let linear = |_| Linear::new(e, WIDTH, WIDTH, true);
        Ok(Self {
            tokens: Embedding::new(e, VOCABULARY, WIDTH)?,
            layers: (0..4).map(linear).collect::<Result<_>>()?,
            dropout: Dropout::new(0.1)?,
        })
    }
}

impl Model for LossAtEachDepth {
    fn losses(&self, index: u64, rows: usize) -> Result<Vec<Tensor>> {
        let engine = self.tokens.weight.engine();
        let mut random = Random(index);
        let mut batch =
            || engine.indices(&random.tokens(rows * LENGTH, VOCABULARY), [rows, LENGTH]);
        let (x, y) = (batch()?, batch()?);
        let mut h = self.tokens.forward(&x)?;
        let mut total: Option<Tensor> = None;
        for layer in self.layers.iter().chain(&self.layers) {
            h = h.add(&self.dropout.forward(&layer.forward(&h)?.gelu()?)?)?;
            let loss = h.linear_cross_entropy(&self.tokens.weight, &y)?;
            total = Some(match total {
                Some(sum) => sum.add(&loss)?,
                None => loss,
            });
        }
        Ok(total.into_iter().collect())
    }

    fn sets(&self) -> Vec<Vec<Parameter>> {
        vec![self.parameters()]
    }
}
