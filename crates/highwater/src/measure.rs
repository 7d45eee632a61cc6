//! Measures the machine: short training steps of small models, timed node by node as in any run.

use crate::nn::{CausalSelfAttention, Dropout, LayerNorm, Linear, Module};
use crate::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm_};
use crate::problem::rates::{Rates, Timing};
use crate::{self as highwater, DType, Engine, Parameter, Result, Tensor, autocast};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// The most bytes that tensors take meanwhile.
const ARENA_BYTES: u64 = 28 << 20;
/// Steps of each workload, the first of which does not count: it touches memory for the first time.
const STEPS: RangeInclusive<usize> = 4..=24;
/// Time for each workload beyond the fewest steps.
const TIME: Duration = Duration::from_millis(300);

/// Takes steps; answers the least seconds beside the nodes that one took, for each node.
type Workload = fn(&Engine) -> Result<f64>;

impl Rates {
    /// What [`Rates::measure`] takes for tensors at most, in bytes: some are of a size that caches do not
    /// hold.
    pub const MEASURE_BYTES: u64 = 112 << 20;

    /// Measures this machine with so many threads: for about two seconds, in at most 28 MiB for tensors
    /// beside the threads and their packing buffers, or in [`Rates::MEASURE_BYTES`] if `memory_bytes`
    /// allow: what large tensors take is then measured too, and not concluded from small ones. All of it
    /// is given back.
    ///
    /// Where memory is short it is best done in a process of its own, as the `highwater` program
    /// does: heap that was used once is seldom given back whole.
    ///
    /// # Errors
    /// As [`crate::Builder::build`].
    pub fn measure(threads: usize, memory_bytes: u64) -> Result<Self> {
        let workloads: [(u64, Workload); 7] = [
            (ARENA_BYTES, |engine| transformer(engine, &TINY, adamw)),
            (ARENA_BYTES, |engine| transformer(engine, &SMALL, adamw)),
            (ARENA_BYTES, |engine| transformer(engine, &LARGE, sgd)),
            (ARENA_BYTES, |engine| in_bf16(engine, &SMALL)),
            (ARENA_BYTES, |engine| in_bf16(engine, &LARGE)),
            (ARENA_BYTES, passes),
            (Self::MEASURE_BYTES, streams),
        ];
        let (mut timings, mut node_seconds) = (Vec::new(), f64::INFINITY);
        let allowed = |bytes| bytes == ARENA_BYTES || bytes <= memory_bytes;
        for (arena, workload) in workloads.into_iter().filter(|of| allowed(of.0)) {
            let (nodes, beside) = timed(threads, arena, workload)?;
            timings.extend(nodes);
            node_seconds = beside.min(node_seconds);
        }
        Ok(Self::fit(&timings, node_seconds))
    }
}

/// What nodes took while `run` used an engine of its own, and the seconds beside them, for each node,
/// of the step that had least.
fn timed(threads: usize, arena: u64, run: Workload) -> Result<(Vec<Timing>, f64)> {
    // Each operation by itself.
    let engine = Engine::builder().arena(arena).threads(threads).fuse(false);
    let engine = engine.build()?;
    let node_seconds = run(&engine)?;
    let timings = engine.lock().planning.clock.timings();
    Ok((timings, node_seconds))
}

fn repeat(engine: &Engine, mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    let (started, mut least) = (Instant::now(), f64::INFINITY);
    for count in 1..=*STEPS.end() {
        let begun = Instant::now();
        step()?;
        let (seconds, report) = (begun.elapsed().as_secs_f64(), engine.last_step());
        least = least.min((seconds - report.node_seconds) / f64::from(report.nodes));
        if count >= *STEPS.start() && started.elapsed() >= TIME {
            break;
        }
    }
    Ok(least)
}

/// Passes over tensors of 3 MiB: together more than most caches of one core hold.
fn passes(engine: &Engine) -> Result<f64> {
    let x = Parameter::normal(engine, [1024, 768], 1.0)?;
    let mut optimizer = adamw(vec![x.clone()])?;
    repeat(engine, || {
        let y = x.layer_norm(None, 1e-5)?;
        y.gelu_tanh()?.add(&y)?.sum()?.backward()?;
        clip_grad_norm_(&optimizer.parameters(), 1.0)?;
        optimizer.step()?;
        Ok(())
    })
}

/// A layer of 16 MiB and its moments: they come from memory each time.
fn streams(engine: &Engine) -> Result<f64> {
    let layer = Linear::new(engine, 2048, 2048, false)?;
    let x = Parameter::normal(engine, [512, 2048], 1.0)?;
    let mut optimizer = adamw(layer.parameters())?;
    repeat(engine, || {
        layer.forward(&x)?.gelu_tanh()?.sum()?.backward()?;
        clip_grad_norm_(&optimizer.parameters(), 1.0)?;
        optimizer.step()?;
        Ok(())
    })
}

/// The size of a transformer of one block, and of its batch.
struct Size {
    batch: usize,
    tokens: usize,
    width: usize,
    heads: usize,
    classes: usize,
    dropout: f64,
}

/// Starting a kernel takes about as long as running it.
const TINY: Size = Size {
    batch: 1,
    tokens: 32,
    width: 64,
    heads: 2,
    classes: 64,
    dropout: 0.1,
};

/// Lies in a cache.
const SMALL: Size = Size {
    batch: 8,
    tokens: 128,
    width: 128,
    heads: 4,
    classes: 256,
    dropout: 0.1,
};

/// Products that are about as fast as they get, and attention over many tokens.
const LARGE: Size = Size {
    batch: 1,
    tokens: 512,
    width: 384,
    heads: 6,
    classes: 2048,
    dropout: 0.0,
};

/// All numbers stay about what they are.
const LEARNING_RATE: f64 = 1e-6;

fn adamw(parameters: Vec<Parameter>) -> Result<Box<dyn Optimizer>> {
    let options = AdamWOptions {
        lr: LEARNING_RATE,
        ..AdamWOptions::default()
    };
    Ok(Box::new(AdamW::new(parameters, options)?))
}

/// Keeps no state, for lack of room.
fn sgd(parameters: Vec<Parameter>) -> Result<Box<dyn Optimizer>> {
    let options = SgdOptions {
        lr: LEARNING_RATE,
        ..SgdOptions::default()
    };
    Ok(Box::new(Sgd::new(parameters, options)?))
}

#[derive(Module)]
struct Transformer {
    words: Parameter,
    attention_norm: LayerNorm,
    attention: CausalSelfAttention,
    norm: LayerNorm,
    up: Linear,
    down: Linear,
    dropout: Dropout,
}

impl Transformer {
    fn new(e: &Engine, size: &Size) -> Result<Self> {
        let width = size.width;
        Ok(Self {
            // Small numbers, so that no softmax is so sure of itself that gradients underflow, which
            // would make products slow.
            words: Parameter::normal(e, [size.classes, width], 0.02)?,
            attention_norm: LayerNorm::new(e, width, 1e-5)?,
            attention: CausalSelfAttention::new(e, width, size.heads, size.dropout)?,
            norm: LayerNorm::new(e, width, 1e-5)?,
            up: Linear::new(e, width, 4 * width, true)?,
            down: Linear::new(e, 4 * width, width, true)?,
            dropout: Dropout::new(size.dropout)?,
        })
    }

    fn loss(&self, tokens: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let x = self.words.embedding(tokens)?;
        let x = x.add(&self.attention.forward(&self.attention_norm.forward(&x)?)?)?;
        let hidden = self.up.forward(&self.norm.forward(&x)?)?.gelu_tanh()?;
        let x = x.add(&self.dropout.forward(&self.down.forward(&hidden)?)?)?;
        x.linear_cross_entropy(&self.words, labels)
    }
}

/// Training steps of a transformer with products in `BF16`.
fn in_bf16(engine: &Engine, size: &Size) -> Result<f64> {
    autocast(DType::BF16, || transformer(engine, size, sgd))
}

/// Training steps of a transformer.
fn transformer(
    engine: &Engine,
    size: &Size,
    optimizer: fn(Vec<Parameter>) -> Result<Box<dyn Optimizer>>,
) -> Result<f64> {
    let model = Transformer::new(engine, size)?;
    let mut optimizer = optimizer(model.parameters())?;
    // Spread over the table, as words are.
    let indices = |shift: usize| {
        let spread = (0..size.batch * size.tokens).map(|i| (i + shift) * 7919 % size.classes);
        let spread: Vec<u32> = spread.map(|index| index as u32).collect();
        engine.indices(&spread, [size.batch, size.tokens])
    };
    let (tokens, labels) = (indices(0)?, indices(1)?);
    repeat(engine, || {
        model.loss(&tokens, &labels)?.backward()?;
        optimizer.step()?;
        Ok(())
    })
}
