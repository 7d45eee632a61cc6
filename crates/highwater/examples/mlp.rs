//! A multilayer perceptron learns two interleaved spirals inside 8 MiB of tensors.
//!
//! `cargo run --release -p highwater --example mlp`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Result, Tensor};

#[derive(Module)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
    out: Linear,
}

impl Mlp {
    fn new(engine: &Engine, width: usize) -> Result<Self> {
        let fc1 = Linear::new(engine, 2, width, true)?;
        let fc2 = Linear::new(engine, width, width, true)?;
        Ok(Self {
            fc1,
            fc2,
            out: Linear::new(engine, width, 2, true)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.fc1.forward(x)?.gelu()?;
        self.out.forward(&self.fc2.forward(&x)?.gelu()?)
    }
}

fn spirals(points: usize) -> (Vec<f32>, Vec<u32>) {
    let point = |i: usize| {
        let (arm, t) = (i % 2, i as f32 / points as f32);
        let angle = 6.0 * t + std::f32::consts::PI * arm as f32;
        [t * angle.cos(), t * angle.sin()]
    };
    (
        (0..points).flat_map(point).collect(),
        (0..points).map(|i| (i % 2) as u32).collect(),
    )
}

fn main() -> Result<()> {
    let engine = Engine::builder().arena(8 << 20).seed(1).build()?;
    let model = Mlp::new(&engine, 64)?;
    let options = AdamWOptions {
        lr: 1e-2,
        ..AdamWOptions::default()
    };
    let mut optimizer = AdamW::new(model.parameters(), options)?;
    let (points, arms) = spirals(512);
    let x = engine.tensor(&points, [512, 2])?;
    let y = engine.indices(&arms, [512])?;
    let mut last = f32::INFINITY;
    for step in 0..200 {
        let loss = model.forward(&x)?.cross_entropy(&y)?;
        loss.backward()?;
        optimizer.step()?;
        last = loss.item()?;
        if step % 50 == 0 {
            println!("step {step:3}  loss {last:.4}");
        }
    }
    println!(
        "last loss {last:.4}, in {} bytes",
        engine.last_step().planned_arena_bytes
    );
    assert!(last < 0.1, "the spirals were not learnt");
    Ok(())
}
