//! What chains of pointwise operations take one by one and as one, in milliseconds:
//! `cargo bench -p highwater-models --bench chains`.
//!
//! The least of many runs, in turn.

#![expect(clippy::print_stdout, reason = "a table for people")]

use highwater::{DType, Engine, Result, Tensor, eval, no_grad};
use std::time::Instant;

const ROUNDS: u32 = 15;
const ROWS: usize = 32_768;
const COLUMNS: usize = 768;

/// A name, and what computes it.
type Chain = (&'static str, fn(&[Tensor; 4]) -> Result<Tensor>);

const CHAINS: [Chain; 4] = [
    ("copy: x + 1", |[x, ..]| x.add_scalar(1.0)),
    ("(x * y + z).relu()", |[x, y, z, _]| {
        x.mul(y)?.add(z)?.relu()
    }),
    ("((x * y + z).tanh() * w).sigmoid()", |[x, y, z, w]| {
        x.mul(y)?.add(z)?.tanh()?.mul(w)?.sigmoid()
    }),
    ("(1 - x / 2) / 2, by scalars", |[x, ..]| {
        x.neg()?.mul_scalar(0.5)?.add_scalar(1.0)?.mul_scalar(0.5)
    }),
];

fn main() -> Result<()> {
    println!(
        "{:<38}{:>6}{:>12}{:>12}{:>8}",
        "32768 x 768", "dtype", "one by one", "as one", "ratio"
    );
    for dtype in [DType::F32, DType::BF16] {
        let engines = [false, true].map(|fuse| Engine::builder().fuse(fuse).build());
        let [apart, fused] = engines;
        let (apart, fused) = (apart?, fused?);
        let inputs = [leaves(&apart, dtype)?, leaves(&fused, dtype)?];
        for (name, chain) in CHAINS {
            let mut least = [f64::INFINITY; 2];
            for _ in 0..ROUNDS {
                for (least, inputs) in least.iter_mut().zip(&inputs) {
                    let (out, start) = (no_grad(|| chain(inputs))?, Instant::now());
                    eval([&out])?;
                    *least = least.min(1e3 * start.elapsed().as_secs_f64());
                }
            }
            let [apart, fused] = least;
            let ratio = fused / apart;
            println!("{name:<38}{dtype:>6}{apart:>12.2}{fused:>12.2}{ratio:>8.2}");
        }
    }
    Ok(())
}

fn leaves(engine: &Engine, dtype: DType) -> Result<[Tensor; 4]> {
    let leaf = |seed: usize| {
        let number = |i: usize| ((i * 7919 + seed * 31) % 4001) as f32 / 1000.0 - 2.0;
        let numbers: Vec<f32> = (0..ROWS * COLUMNS).map(number).collect();
        engine.tensor(&numbers, [ROWS, COLUMNS])?.to_dtype(dtype)
    };
    let leaves = [leaf(1)?, leaf(2)?, leaf(3)?, leaf(4)?];
    eval(&leaves)?;
    Ok(leaves)
}
