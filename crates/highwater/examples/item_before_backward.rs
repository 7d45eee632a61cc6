//! Reading the loss before `backward()`: the same bits, in budget, and nothing is computed twice
//! where there is room.
//!
//! `cargo run --release -p highwater --example item_before_backward`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Result, Tensor};

fn train(read_early: bool) -> Result<Vec<f32>> {
    let engine = Engine::builder().arena(2 << 20).seed(7).build()?;
    let layers = (0..4)
        .map(|_| Linear::new(&engine, 64, 64, true))
        .collect::<Result<Vec<_>>>()?;
    let mut optimizer = AdamW::new(layers.parameters(), AdamWOptions::default())?;
    let mut losses = Vec::new();
    for _ in 0..10 {
        let x = Tensor::randn(&engine, [128, 64])?;
        let mut h = x.clone();
        for layer in &layers {
            h = layer.forward(&h)?.tanh()?;
        }
        let error = h.sub(&x)?;
        let loss = error.mul(&error)?.mean()?;
        if read_early {
            losses.push(loss.item()?);
        }
        loss.backward()?;
        optimizer.step()?;
        if !read_early {
            losses.push(loss.item()?);
        }
    }
    Ok(losses)
}

fn main() -> Result<()> {
    let (early, late) = (train(true)?, train(false)?);
    println!("read before backward: {early:?}");
    assert_eq!(early, late, "reading a value must not change one bit");
    Ok(())
}
