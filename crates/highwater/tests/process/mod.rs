//! Training whose process is measured as a whole.

use highwater::nn::{Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Parameter};

const WIDTH: usize = 1024;

/// Losses of a few steps of a model of 96 MiB, parameters and moments together; `look` is called after each.
pub(crate) fn train(engine: &Engine, mut look: impl FnMut()) -> Vec<f32> {
    let layer = |_| Linear::new(engine, WIDTH, WIDTH, true).unwrap();
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
        look();
    }
    seen
}

/// The most that the process has occupied, in bytes.
pub(crate) fn high_water() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<u64>().unwrap() << 10
}
