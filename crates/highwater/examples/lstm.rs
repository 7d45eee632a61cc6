//! An LSTM over sequences of several lengths, packed: which of two symbols came more often?
//!
//! `cargo run --release -p highwater --example lstm`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{Embedding, Linear, Lstm, Module, PackedSequence, RecurrentOptions};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, clip_grad_norm_};
use highwater::{Engine, Result, Tensor, no_grad};

const LONGEST: usize = 12;

#[derive(Module)]
struct Counter {
    symbols: Embedding,
    lstm: Lstm,
    head: Linear,
}

impl Counter {
    fn forward(&self, symbols: &Tensor, lengths: &[usize]) -> Result<Tensor> {
        let packed = PackedSequence::pack(&self.symbols.forward(symbols)?, lengths)?;
        // The last state of each sequence, wherever it ended.
        let (_, (h, _)) = self.lstm.forward(&packed, None)?;
        self.head.forward(&h.reshape([lengths.len(), 32])?)
    }
}

/// Sequences of zeros and ones, their lengths, and which of both each has more of.
fn batch(state: &mut u32, rows: usize) -> (Vec<u32>, Vec<usize>, Vec<u32>) {
    let mut next = |below: u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*state >> 16) % below
    };
    let (mut symbols, mut lengths, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rows {
        // Odd, so that there is no draw.
        let length = 1 + 2 * next(LONGEST as u32 / 2) as usize;
        let row: Vec<u32> = (0..LONGEST).map(|_| next(2)).collect();
        let ones = row[..length].iter().sum::<u32>() as usize;
        symbols.extend(row);
        lengths.push(length);
        labels.push(u32::from(2 * ones > length));
    }
    (symbols, lengths, labels)
}

fn main() -> Result<()> {
    let engine = Engine::builder().arena(8 << 20).seed(1).build()?;
    let model = Counter {
        symbols: Embedding::new(&engine, 2, 8)?,
        lstm: Lstm::new(&engine, 8, 32, RecurrentOptions::default())?,
        head: Linear::new(&engine, 32, 2, true)?,
    };
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default())?;
    optimizer.set_lr(1e-2)?;
    let mut state = 7;
    for _ in 0..150 {
        let (symbols, lengths, labels) = batch(&mut state, 64);
        let symbols = engine.indices(&symbols, [64, LONGEST])?;
        let logits = model.forward(&symbols, &lengths)?;
        logits
            .cross_entropy(&engine.indices(&labels, [64])?)?
            .backward()?;
        clip_grad_norm_(&model.parameters(), 1.0)?;
        optimizer.step()?;
    }
    let (symbols, lengths, labels) = batch(&mut state, 256);
    let symbols = engine.indices(&symbols, [256, LONGEST])?;
    let logits = no_grad(|| model.forward(&symbols, &lengths)?.to_vec::<f32>())?;
    let right = logits
        .chunks(2)
        .zip(&labels)
        .filter(|(l, y)| u32::from(l[1] > l[0]) == **y)
        .count();
    println!("{right} of 256 new sequences are counted right");
    assert!(right > 230, "{right}");
    Ok(())
}
