//! A process of its own, since the whole process is measured: memory of kernels, host memory and the rest
//! stay inside their bounds, each for itself and together.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(target_os = "linux")]

use highwater::nn::{Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Builder, Engine, Parameter};

const WIDTH: usize = 1024;

fn train(builder: Builder) -> (Vec<f32>, Engine, u64) {
    let engine = builder.seed(7).threads(2).build().unwrap();
    let reserve = engine.reserve_bytes();
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
    let grown = engine.reserve_bytes() - reserve;
    (seen, engine, grown)
}

/// The most that the process has occupied, in bytes.
fn high_water() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn the_process_stays_inside_all_its_budgets() {
    let (budget, host) = (160 << 20, 96 << 20);
    // 96 MiB of parameters and moments.
    let (seen, engine, grown) = train(Engine::builder().memory(budget).host_memory(host));
    let most = high_water();
    assert!(most <= budget, "{most} of {budget}");
    let tiers = engine.tiers();
    let used = tiers.host.unwrap();
    assert!(used.most_bytes <= host && used.bytes > host / 2, "{used:?}");
    let left = budget - host - engine.reserve_bytes();
    assert!(tiers.device.most_bytes <= left, "{tiers:?} of {left}");
    // What lies in host memory is not taken for a process that grew.
    assert!(grown < 8 << 20, "{grown}");
    let io = engine.totals().host_io;
    assert!(io.bytes_read > 0 && io.bytes_written > 0);
    drop(engine);
    assert_eq!(seen, train(Engine::builder()).0);
}
