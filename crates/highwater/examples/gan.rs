//! A generative adversarial network: two models, two optimizers, `detach`, frozen parameters.
//!
//! `cargo run --release -p highwater --example gan`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Result, Tensor, no_grad};

#[derive(Module)]
struct Net {
    hidden: Linear,
    out: Linear,
}

impl Net {
    fn new(engine: &Engine, inputs: usize) -> Result<Self> {
        let hidden = Linear::new(engine, inputs, 32, true)?;
        Ok(Self {
            hidden,
            out: Linear::new(engine, 32, 1, true)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.out.forward(&self.hidden.forward(x)?.tanh()?)
    }
}

/// Mean squared distance of the scores from `target` (least-squares GAN, Mao et al. 2017).
fn distance(scores: &Tensor, target: f64) -> Result<Tensor> {
    let error = scores.sub_scalar(target)?;
    error.mul(&error)?.mean()
}

fn main() -> Result<()> {
    let engine = Engine::builder().arena(4 << 20).seed(3).build()?;
    let (generator, critic) = (Net::new(&engine, 4)?, Net::new(&engine, 1)?);
    let options = AdamWOptions {
        lr: 5e-3,
        betas: (0.5, 0.9),
        ..AdamWOptions::default()
    };
    let mut optimize_generator = AdamW::new(generator.parameters(), options.clone())?;
    let mut optimize_critic = AdamW::new(critic.parameters(), options)?;
    let fake = || generator.forward(&Tensor::randn(&engine, [128, 4])?);
    for _ in 0..400 {
        // Data: a normal distribution around 3.
        let real = Tensor::randn(&engine, [128, 1])?
            .mul_scalar(0.5)?
            .add_scalar(3.0)?;
        let on_fake = critic.forward(&fake()?.detach()?)?;
        distance(&critic.forward(&real)?, 1.0)?
            .add(&distance(&on_fake, 0.0)?)?
            .backward()?;
        optimize_critic.step()?;
        critic.requires_grad_(false);
        distance(&critic.forward(&fake()?)?, 1.0)?.backward()?;
        optimize_generator.step()?;
        critic.requires_grad_(true);
    }
    let mean = no_grad(|| fake()?.mean()?.item())?;
    println!("mean of what the generator makes: {mean:.2} (data: 3)");
    assert!((mean - 3.0).abs() < 1.0, "the generator missed the data");
    Ok(())
}
