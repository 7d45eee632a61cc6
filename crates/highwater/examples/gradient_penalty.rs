//! A critic with a penalty on its gradient (Gulrajani et al., "Improved Training of Wasserstein GANs", 2017): the
//! gradient in the inputs is part of the loss, which is differentiated in turn.
//!
//! `cargo run --release -p highwater --example gradient_penalty`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{Linear, Module, Sequential};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, GradOptions, Result, Tensor, grad, grad_with};

/// The length of the gradient in each of the points, and the mean of its squared distance from one.
fn penalty(critic: &Sequential, points: &Tensor) -> Result<Tensor> {
    let options = GradOptions {
        create_graph: true,
        ..GradOptions::default()
    };
    let score = critic.forward(points)?.sum()?;
    let slope = grad_with(&[&score], &[points], options)?.remove(0);
    let length = slope.square()?.sum_dims(&[1], false)?;
    let length = length.add_scalar(1e-12)?.sqrt()?;
    length.sub_scalar(1.0)?.square()?.mean()
}

fn main() -> Result<()> {
    let engine = Engine::builder().arena(8 << 20).seed(5).build()?;
    let critic = Sequential::new()
        .then(Linear::new(&engine, 2, 48, true)?)
        .then_fn(Tensor::silu)
        .then(Linear::new(&engine, 48, 48, true)?)
        .then_fn(Tensor::silu)
        .then(Linear::new(&engine, 48, 1, true)?);
    let options = AdamWOptions {
        lr: 2e-3,
        betas: (0.5, 0.9),
        ..AdamWOptions::default()
    };
    let mut optimizer = AdamW::new(critic.parameters(), options)?;
    let mut distance = 0.0;
    for step in 0..400 {
        // Two clouds, three apart: the distance that a critic of slope one can tell.
        let fake = Tensor::randn(&engine, [128, 2])?.mul_scalar(0.3)?;
        let away = engine.tensor(&[3.0, 0.0], [2])?;
        let real = Tensor::randn(&engine, [128, 2])?
            .mul_scalar(0.3)?
            .add(&away)?;
        // Points between both.
        let share: Vec<f32> = (0..128).map(|i| i as f32 / 127.0).collect();
        let share = engine.tensor(&share, [128, 1])?;
        let between = fake.add(&share.mul(&real.sub(&fake)?)?)?.to_vec::<f32>()?;
        let between = engine.tensor(&between, [128, 2])?.requires_grad_()?;
        let gap = critic
            .forward(&real)?
            .mean()?
            .sub(&critic.forward(&fake)?.mean()?)?;
        let loss = penalty(&critic, &between)?.mul_scalar(10.0)?.sub(&gap)?;
        loss.backward()?;
        optimizer.step()?;
        distance = gap.item()?;
        if step % 100 == 0 {
            println!("step {step:3}  distance {distance:.3}");
        }
    }
    let x = engine.tensor(&[1.5, 0.0], [1, 2])?.requires_grad_()?;
    let slope = grad(&critic.forward(&x)?.sum()?, &[&x])?
        .remove(0)
        .to_vec::<f32>()?;
    println!(
        "distance {distance:.2} of 3, slope in the middle {:.2}",
        slope[0]
    );
    assert!((distance - 3.0).abs() < 0.6 && (slope[0] - 1.0).abs() < 0.3);
    Ok(())
}
