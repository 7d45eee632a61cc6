//! An optimizer of one's own: LAMB, written outside of the library in `rule.rs`.
//!
//! `cargo run --release -p highwater --example lamb`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

mod rule;

use highwater::nn::Sequential;
use highwater::prelude::*;
use rule::{Lamb, LambOptions};

fn main() -> Result<()> {
    let engine = Engine::builder().arena(16 << 20).seed(1).build()?;
    let model = Sequential::new()
        .then(Linear::new(&engine, 8, 32, true)?)
        .then_fn(Tensor::tanh)
        .then(Linear::new(&engine, 32, 1, true)?);
    let options = LambOptions {
        lr: 0.02,
        ..LambOptions::default()
    };
    let mut optimizer = Lamb::new(model.parameters(), options)?;
    let mut losses = Vec::new();
    for step in 0..200 {
        let x = Tensor::randn(&engine, [64, 8])?;
        let wanted = (x.mean_dims(&[1], true)? * 3.0)?.sin()?;
        let loss = (model.forward(&x)? - wanted)?.square()?.mean()?;
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss.item()?);
        if step % 50 == 0 {
            println!("step {step:3}  loss {:.4}", loss.item()?);
        }
    }
    let last = losses[losses.len() - 10..].iter().sum::<f32>() / 10.0;
    println!("mean of the last ten losses {last:.4}");
    assert!(last < losses[0] / 4.0);
    Ok(())
}
