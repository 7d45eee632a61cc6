//! A small GPT learns the bytes of its own source inside a budget of 24 MiB of tensors.
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
        Ok(Self {
            ln_1: LayerNorm::new(e, c, 1e-5)?,
            attn: CausalSelfAttention::new(e, c, 4, 0.0)?,
            ln_2: LayerNorm::new(e, c, 1e-5)?,
            fc: Linear::new(e, c, 4 * c, true)?,
            proj: Linear::new(e, 4 * c, c, true)?,
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
    let blocks = vec![Block::new(&e, c)?, Block::new(&e, c)?];
    let ln_f = LayerNorm::new(&e, c, 1e-5)?;
    let head = Linear::new(&e, c, 256, false)?;
    let modules: [&dyn Module; 5] = [&tokens, &positions, &blocks, &ln_f, &head];
    let all = modules.iter().flat_map(|m| m.parameters()).collect();
    let mut optimizer = AdamW::new(all, AdamWOptions::default())?;
    let text: Vec<u32> = include_str!("gpt.rs").bytes().map(u32::from).collect();
    for step in 0..120 {
        let row = |r, shift| &text[(step * 131 + r * 257) % (text.len() - t - 1) + shift..][..t];
        let batch = |shift| -> Vec<u32> { (0..b).flat_map(|r| row(r, shift)).copied().collect() };
        let (x, y) = (e.indices(&batch(0), [b, t])?, e.indices(&batch(1), [b, t])?);
        let h = tokens.forward(&x)?.add(&positions.weight)?;
        let h = blocks.iter().try_fold(h, |h, block| block.forward(&h))?;
        let loss = ln_f.forward(&h)?.linear_cross_entropy(&head.weight, &y)?;
        loss.backward()?;
        optimizer.step()?;
        println!("step {step:3}  loss {:.3}", loss.item()?);
        assert!(step < 119 || loss.item()? < 4.0, "nothing was learnt");
    }
    Ok(())
}
