//! What a repeated training step costs the host besides its kernels, in microseconds per node, on a
//! dry engine: `cargo bench -p highwater-models --bench step_overhead`.
//!
//! The least of many steps, phase by phase. The plan is found in the cache from the second on.

#![expect(clippy::print_stdout, reason = "a table for people")]

use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Tensor, nn::Module};
use highwater_models::{Gpt2, Gpt2Config};
use std::time::Instant;

const STEPS: u32 = 400;
const BATCH: usize = 2;
const LENGTH: usize = 16;

const PHASES: [&str; 6] = [
    "forward and backward",
    "posing the problem",
    "finding its plan",
    "running it dry",
    "updates and clearing",
    "whole step",
];

fn main() -> highwater::Result<()> {
    println!(
        "{:<22}{:>12}{:>12}",
        "us per node", "12 layers", "48 layers"
    );
    let columns = [measure(12)?, measure(48)?];
    for (i, phase) in PHASES.iter().enumerate() {
        println!("{phase:<22}{:>12.3}{:>12.3}", columns[0][i], columns[1][i]);
    }
    Ok(())
}

/// The least microseconds per node of each phase.
fn measure(layers: usize) -> highwater::Result<[f64; PHASES.len()]> {
    let engine = Engine::builder().dry_run().threads(1).build()?;
    let config = Gpt2Config {
        n_layer: layers,
        n_embd: 16,
        n_head: 2,
        vocab_size: 64,
        n_positions: LENGTH,
        ..Gpt2Config::default()
    };
    let model = Gpt2::new(&engine, config)?;
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default())?;
    let mut least = [f64::INFINITY; PHASES.len()];
    for _ in 0..STEPS {
        let took = step(&engine, &model, &mut optimizer)?;
        least
            .iter_mut()
            .zip(took)
            .for_each(|(least, took)| *least = least.min(took));
    }
    Ok(least)
}

fn step(
    engine: &Engine,
    model: &Gpt2,
    optimizer: &mut AdamW,
) -> highwater::Result<[f64; PHASES.len()]> {
    let started = Instant::now();
    let tokens = Tensor::from_slice(engine, &[0_u32; BATCH * LENGTH], [BATCH, LENGTH])?;
    let loss = model.loss(&tokens, &tokens)?;
    loss.backward()?;
    let built = started.elapsed().as_secs_f64();
    optimizer.step()?;
    let whole = started.elapsed().as_secs_f64();
    let report = engine.last_step();
    let phases = [
        built,
        report.compile_seconds,
        report.choose_seconds - report.compile_seconds,
        report.seconds - report.choose_seconds,
        whole - built - report.seconds,
        whole,
    ];
    Ok(phases.map(|seconds| 1e6 * seconds / f64::from(report.nodes)))
}
