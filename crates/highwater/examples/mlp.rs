//! A multilayer perceptron learns two interleaved spirals inside 8 MiB of tensors.
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
        Ok(Self {
            fc1: Linear::new(engine, 2, width, true)?,
            fc2: Linear::new(engine, width, width, true)?,
            out: Linear::new(engine, width, 2, true)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.fc1.forward(x)?.gelu()?;
        self.out.forward(&self.fc2.forward(&x)?.gelu()?)
    }
}

fn main() -> Result<()> {
    let engine = Engine::builder().arena(8 << 20).seed(1).build()?;
    let model = Mlp::new(&engine, 64)?;
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default())?;
    optimizer.set_lr(1e-2)?;
    let point = |i: u16| {
        let (arm, t) = (f32::from(i % 2), f32::from(i) / 512.0);
        let angle = 6.0 * t + std::f32::consts::PI * arm;
        [t * angle.cos(), t * angle.sin()]
    };
    let points: Vec<f32> = (0..512).flat_map(point).collect();
    let arms: Vec<u32> = (0..512).map(|i| i % 2).collect();
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
    let bytes = engine.last_step().planned_arena_bytes;
    println!("last loss {last:.4}, in {bytes} bytes");
    assert!(last < 0.1, "the spirals were not learnt");
    Ok(())
}
