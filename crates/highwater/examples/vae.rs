//! A variational autoencoder (Kingma and Welling, 2014): two heads, noise inside the graph, two losses.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{Linear, Module, Sequential};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Result, Tensor, no_grad};

#[derive(Module)]
struct Vae {
    encoder: Sequential,
    decoder: Sequential,
}

impl Vae {
    fn new(engine: &Engine) -> Result<Self> {
        let mlp = |inputs, outputs| -> Result<Sequential> {
            let first = Linear::new(engine, inputs, 48, true)?;
            let last = Linear::new(engine, 48, outputs, true)?;
            Ok(Sequential::new()
                .then(first)
                .then_fn(Tensor::relu)
                .then(last))
        };
        Ok(Self {
            encoder: mlp(64, 4)?,
            decoder: mlp(2, 64)?.then_fn(Tensor::sigmoid),
        })
    }

    /// The squared error of the reconstructions, and their divergence from the prior.
    fn losses(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let heads = self.encoder.forward(x)?.chunk(2, 1)?;
        let (mean, log_variance) = (&heads[0], &heads[1]);
        let noise = Tensor::randn(x.engine(), mean.shape().clone())?;
        let z = (mean + &log_variance.mul_scalar(0.5)?.exp()?.mul(&noise)?)?;
        let error = (self.decoder.forward(&z)? - x)?.square()?.sum()?;
        // -1/2 sum(1 + log s^2 - m^2 - s^2)
        let inner = (&log_variance.add_scalar(1.0)? - &mean.square()?)?;
        let divergence = (&inner - &log_variance.exp()?)?.sum()?;
        Ok((error, divergence.mul_scalar(-0.5)?))
    }
}

/// Blobs of light at places in an image of 8 x 8.
fn images(engine: &Engine, step: u32, rows: u32) -> Result<Tensor> {
    let pixel = |i: u32, p: u32| {
        let place = (i + 37 * step) * 7919 % 64;
        let (dx, dy) = ((p % 8).abs_diff(place % 8), (p / 8).abs_diff(place / 8));
        (-((dx * dx + dy * dy) as f32) / 3.0).exp()
    };
    let data: Vec<f32> = (0..rows)
        .flat_map(|i| (0..64).map(move |p| pixel(i, p)))
        .collect();
    engine.tensor(&data, [rows as usize, 64])
}

fn main() -> Result<()> {
    let engine = Engine::builder().arena(8 << 20).seed(1).build()?;
    let model = Vae::new(&engine)?;
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default())?;
    optimizer.set_lr(3e-3)?;
    let (mut first, mut last) = (f32::NAN, 0.0);
    for step in 0..400 {
        let (error, divergence) = model.losses(&images(&engine, step, 64)?)?;
        let loss = (&error + &divergence.mul_scalar(0.05)?)?;
        loss.mul_scalar(1.0 / 64.0)?.backward()?;
        optimizer.step()?;
        last = error.item()? / 64.0;
        if step == 0 {
            first = last;
        }
    }
    let noise = Tensor::randn(&engine, [4, 2])?;
    let drawn = no_grad(|| model.decoder.forward(&noise)?.to_vec::<f32>())?;
    println!("squared error of an image: {first:.2}, after training {last:.2}");
    assert!(last < 0.5 * first && drawn.iter().all(|x| (0.0..=1.0).contains(x)));
    Ok(())
}
