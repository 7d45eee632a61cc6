//! Gradient accumulation: three small batches give the gradient of the large one.
//!
//! `cargo run --release -p highwater --example accumulate`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{Linear, Module};
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Result, Tensor};

fn main() -> Result<()> {
    let engine = Engine::builder().arena(4 << 20).seed(1).build()?;
    let model = Linear::new(&engine, 8, 1, true)?;
    let options = SgdOptions {
        lr: 0.05,
        ..SgdOptions::default()
    };
    let mut optimizer = Sgd::new(model.parameters(), options)?;
    let truth = engine.tensor(&[1.0, -2.0, 3.0, 0.5, 0.0, -1.0, 2.0, 1.0], [1, 8])?;
    let mut last = f32::INFINITY;
    for step in 0..100 {
        let mut total = 0.0;
        for _ in 0..3 {
            let x = Tensor::randn(&engine, [32, 8])?;
            let error = model.forward(&x)?.sub(&x.linear(&truth, None)?)?;
            // The mean over three equal batches is a third of the sum of their means.
            let loss = error.mul(&error)?.mean()?.mul_scalar(1.0 / 3.0)?;
            loss.backward()?;
            total += loss.item()?;
        }
        optimizer.step()?;
        last = total;
        if step % 25 == 0 {
            println!("step {step:3}  loss {total:.5}");
        }
    }
    println!("last loss {last:.6}");
    assert!(last < 1e-3, "the weights were not found");
    Ok(())
}
