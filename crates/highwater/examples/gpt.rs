//! A small GPT learns the bytes of its own source inside a budget of 24 MiB of tensors.
//!
//! `cargo run --release -p highwater --example gpt`

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use highwater::nn::{CausalSelfAttention, Embedding, LayerNorm, Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Result, Tensor};

#[derive(Module)]
struct Block {
    ln_1: LayerNorm,
    attn: CausalSelfAttention,
    ln_2: LayerNorm,
    fc: Linear,
    proj: Linear,
}

impl Block {
    fn new(e: &Engine, c: usize) -> Result<Self> {
        let (ln_1, ln_2) = (LayerNorm::new(e, c, 1e-5)?, LayerNorm::new(e, c, 1e-5)?);
        let attn = CausalSelfAttention::new(e, c, 4, 0.0)?;
        let (fc, proj) = (
            Linear::new(e, c, 4 * c, true)?,
            Linear::new(e, 4 * c, c, true)?,
        );
        Ok(Self {
            ln_1,
            attn,
            ln_2,
            fc,
            proj,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.add(&self.attn.forward(&self.ln_1.forward(x)?)?)?;
        let hidden = self.fc.forward(&self.ln_2.forward(&x)?)?.gelu_tanh()?;
        x.add(&self.proj.forward(&hidden)?)
    }
}

fn main() -> Result<()> {
    let (b, t, c) = (8, 64, 64);
    let e = Engine::builder().arena(24 << 20).seed(1).build()?;
    let (tokens, positions) = (Embedding::new(&e, 256, c)?, Embedding::new(&e, t, c)?);
    let blocks = (0..4)
        .map(|_| Block::new(&e, c))
        .collect::<Result<Vec<_>>>()?;
    let (ln_f, head) = (
        LayerNorm::new(&e, c, 1e-5)?,
        Linear::new(&e, c, 256, false)?,
    );
    let modules: [&dyn Module; 5] = [&tokens, &positions, &blocks, &ln_f, &head];
    let parameters = modules.iter().flat_map(|m| m.parameters()).collect();
    let options = AdamWOptions {
        lr: 3e-3,
        ..AdamWOptions::default()
    };
    let mut optimizer = AdamW::new(parameters, options)?;
    let text: Vec<u32> = include_str!("gpt.rs").bytes().map(u32::from).collect();
    let mut losses = Vec::new();
    for step in 0..60 {
        let start = |row| (step * 131 + row * 257) % (text.len() - t - 1);
        let row = |r, shift| text[start(r) + shift..start(r) + shift + t].to_vec();
        let batch = |shift| (0..b).flat_map(|r| row(r, shift)).collect::<Vec<_>>();
        let (x, y) = (e.indices(&batch(0), [b, t])?, e.indices(&batch(1), [b, t])?);
        let mut h = tokens.forward(&x)?.add(&positions.weight)?;
        for block in &blocks {
            h = block.forward(&h)?;
        }
        let loss = ln_f.forward(&h)?.linear_cross_entropy(&head.weight, &y)?;
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss.item()?);
    }
    println!("{losses:.3?}");
    assert!(losses[59] < 0.75 * losses[0], "nothing was learnt");
    Ok(())
}
