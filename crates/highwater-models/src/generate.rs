//! Sampling text from a model, for checking only: each token runs the whole window again.

use crate::CausalLm;
use highwater::{DType, Error, Result, no_grad, philox};

/// How to choose tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token always; 1 draws from the model's distribution.
    pub temperature: f64,
    /// Seed of the draws.
    pub seed: u64,
    /// The most tokens to look back on, or the model's positions if they are fewer: those that it was
    /// not trained on say nothing.
    pub context: usize,
}

/// Continues `prompt` by `count` tokens, and shows each to `on_token`. Runs inside the engine's
/// budget. Windows have few different lengths, so that few plans are made.
///
/// # Errors
/// [`Error`] for an empty prompt, a token out of range, or a budget that is too small.
pub fn generate(
    model: &dyn CausalLm,
    prompt: &[u32],
    count: usize,
    sampling: Sampling,
    mut on_token: impl FnMut(u32),
) -> Result<Vec<u32>> {
    if prompt.is_empty() {
        return Err(Error::Saved("a prompt needs at least one token".to_owned()));
    }
    model.eval();
    let engine = model.engine();
    let longest = model.architecture().max_length();
    let context = sampling.context.clamp(1, longest);
    let mut tokens = prompt.to_vec();
    for drawn in 0..count as u64 {
        let start = tokens.len().saturating_sub(context);
        let seen = &tokens[start..];
        let length = seen.len().next_power_of_two().max(32).min(longest);
        let mut window = seen.to_vec();
        // What stands behind the last token is not seen by it: attention is causal.
        window.resize(length, 0);
        let logits = no_grad(|| {
            let window = engine.indices(&window, [1, length])?;
            let logits = model.next_logits(&window, seen.len() - 1)?;
            match logits.dtype() {
                DType::F32 => logits.to_vec::<f32>(),
                _ => logits.to_dtype(DType::F32)?.to_vec(),
            }
        })?;
        let token = choose(&logits, sampling, drawn);
        tokens.push(token);
        on_token(token);
    }
    model.train(true);
    Ok(tokens)
}

fn choose(logits: &[f32], sampling: Sampling, drawn: u64) -> u32 {
    let best = |a: &(usize, &f32), b: &(usize, &f32)| a.1.total_cmp(b.1);
    let likeliest = logits
        .iter()
        .enumerate()
        .max_by(best)
        .map_or(0, |(token, _)| token);
    if sampling.temperature <= 0.0 {
        return likeliest as u32;
    }
    let top = f64::from(logits[likeliest]);
    let weight = |&logit: &f32| ((f64::from(logit) - top) / sampling.temperature).exp();
    let total: f64 = logits.iter().map(weight).sum();
    let mut uniform = [0.0];
    philox::fill_uniform(sampling.seed, drawn, &mut uniform);
    let mut left = f64::from(uniform[0]) * total;
    for (token, logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return token as u32;
        }
    }
    likeliest as u32
}
