//! Two towers and a contrastive loss (Radford et al., "CLIP", 2021): each item is to find its partner among all
//! of the batch.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{Linear, Module, Sequential};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Parameter, Result, Tensor};

fn tower(engine: &Engine, inputs: usize) -> Result<Sequential> {
    Ok(Sequential::new()
        .then(Linear::new(engine, inputs, 64, true)?)
        .then_fn(Tensor::gelu)
        .then(Linear::new(engine, 64, 16, true)?)
        .then_fn(direction))
}

/// Vectors of length one.
fn direction(x: &Tensor) -> Result<Tensor> {
    let square = x.square()?.sum_dims(&[1], true)?;
    x.div(&square.add_scalar(1e-12)?.sqrt()?)
}

#[derive(Module)]
struct Model {
    left: Sequential,
    right: Sequential,
    /// The logarithm of what similarities are multiplied by.
    scale: Parameter,
}

impl Model {
    /// Similarities of all pairs.
    fn logits(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let similarity = self
            .left
            .forward(a)?
            .matmul(&self.right.forward(b)?.transpose(0, 1)?)?;
        similarity.mul(&self.scale.exp()?)
    }
}

fn main() -> Result<()> {
    let engine = Engine::builder().arena(8 << 20).seed(2).build()?;
    let model = Model {
        left: tower(&engine, 12)?,
        right: tower(&engine, 20)?,
        scale: Parameter::new(&engine, [1], |s| s[0] = (1.0_f32 / 0.07).ln())?,
    };
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default())?;
    optimizer.set_lr(3e-3)?;
    // Both sides see the same six numbers, each through a lens of its own.
    let lenses = (
        Tensor::randn(&engine, [6, 12])?,
        Tensor::randn(&engine, [6, 20])?,
    );
    let partners: Vec<u32> = (0..64).collect();
    let partners = engine.indices(&partners, [64])?;
    let mut right = 0;
    for step in 0..300 {
        let seen = Tensor::randn(&engine, [64, 6])?;
        let logits = model.logits(&seen.matmul(&lenses.0)?, &seen.matmul(&lenses.1)?)?;
        // Each row is to find its column, and each column its row.
        let rows = logits.cross_entropy(&partners)?;
        let columns = logits.transpose(0, 1)?.cross_entropy(&partners)?;
        (&rows + &columns)?.mul_scalar(0.5)?.backward()?;
        optimizer.step()?;
        if step == 299 {
            let logits = logits.to_vec::<f32>()?;
            let rows = logits.chunks(64).enumerate();
            right = rows
                .filter(|(i, row)| row.iter().all(|x| *x <= row[*i]))
                .count();
        }
    }
    println!("{right} of 64 find their partner");
    assert!(right > 50, "{right}");
    Ok(())
}
