//! A process of its own, since the whole process is measured: it stays inside its budget while its
//! parameters and moments are several times as large.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(target_os = "linux")]

use highwater::nn::{Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, Engine, Parameter, Totals};

const WIDTH: usize = 1024;

fn train(builder: Builder) -> (Vec<f32>, Totals) {
    let engine = builder.seed(7).threads(2).build().unwrap();
    let layer = |_| Linear::new(&engine, WIDTH, WIDTH, true).unwrap();
    let layers: Vec<Linear> = (0..8).map(layer).collect();
    let parameters: Vec<Parameter> = layers.iter().flat_map(Module::parameters).collect();
    let mut adamw = AdamW::new(parameters, AdamWOptions::default()).unwrap();
    let mut seen = Vec::new();
    for step in 0..4 {
        let values: Vec<f32> = (0..WIDTH).map(|i| ((i + step) % 7) as f32).collect();
        let mut x = engine.tensor(&values, [1, WIDTH]).unwrap();
        for layer in &layers {
            x = layer.forward(&x).unwrap().gelu().unwrap();
        }
        let loss = x.mul(&x).unwrap().mean().unwrap();
        loss.backward().unwrap();
        adamw.step().unwrap();
        seen.push(loss.item().unwrap());
    }
    (seen, engine.totals())
}

/// The most that the process has occupied, in bytes.
fn high_water() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn the_process_stays_inside_its_budget() {
    let folder = tempfile::tempdir().unwrap();
    let budget = 64 << 20;
    let little = Engine::builder()
        .memory(budget)
        .disk(folder.path(), 256 << 20);
    // 96 MiB of parameters and moments.
    let (seen, totals) = train(little);
    let most = high_water();
    assert!(most <= budget, "{most} of {budget}");
    assert!(totals.io.bytes_read > 0 && totals.io.bytes_written > 0);
    assert_eq!(seen, train(Engine::builder()).0);
}
