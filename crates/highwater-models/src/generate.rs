//! Sampling text from a model, for checking only: each token runs the whole window again.

use std::ops::ControlFlow;

use crate::CausalLm;
use highwater::{DType, Error, Result, no_grad, philox};

/// How to choose tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token always; 1 draws from the model's distribution.
    pub temperature: f64,
    /// Only so many of the likeliest tokens are drawn from; all without it.
    pub top_k: Option<usize>,
    /// Only the fewest of the likeliest tokens are drawn from that have this share together; all at 1.
    pub top_p: f64,
    /// Seed of the draws.
    pub seed: u64,
    /// The most tokens to look back on, or the model's positions if they are fewer: those that it was
    /// not trained on say nothing.
    pub context: usize,
}

impl Default for Sampling {
    /// The likeliest token always.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            seed: 0,
            context: usize::MAX,
        }
    }
}

/// Continues `prompt` by `count` tokens, or until `on_token`, which is shown each, says to stop. Runs inside the engine's
/// budget. Windows have few different lengths, so that few plans are made.
///
/// # Errors
/// [`Error`] for an empty prompt, a token out of range, or a budget that is too small.
pub fn generate(
    model: &dyn CausalLm,
    prompt: &[u32],
    count: usize,
    sampling: Sampling,
    mut on_token: impl FnMut(u32) -> ControlFlow<()>,
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
        if on_token(token).is_break() {
            break;
        }
    }
    model.train(true);
    Ok(tokens)
}

/// The next token. What is left of the distribution after temperature, [`Sampling::top_k`] and [`Sampling::top_p`],
/// in this order as in transformers, is drawn from.
fn choose(logits: &[f32], sampling: Sampling, drawn: u64) -> u32 {
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    // The likeliest first; of equals the one that comes last, as `max_by` has it.
    let by_logit = |&a: &u32, &b: &u32| {
        let [x, y] = [a, b].map(|token| logits[token as usize]);
        y.total_cmp(&x).then(b.cmp(&a))
    };
    if sampling.temperature <= 0.0 {
        return order.into_iter().min_by(by_logit).unwrap_or_default();
    }
    let kept = sampling.top_k.unwrap_or(usize::MAX).clamp(1, order.len());
    let is_cut = kept < order.len() || sampling.top_p < 1.0;
    if is_cut {
        order.sort_unstable_by(by_logit);
        order.truncate(kept);
    }
    let top = order.iter().map(|&token| logits[token as usize]);
    let top = f64::from(top.fold(f32::NEG_INFINITY, f32::max));
    let weight =
        |&token: &u32| ((f64::from(logits[token as usize]) - top) / sampling.temperature).exp();
    if is_cut {
        let all: f64 = order.iter().map(weight).sum();
        let mut sum = 0.0;
        // The fewest that have so much of it.
        let enough = order.iter().position(|token| {
            sum += weight(token);
            sum >= sampling.top_p * all
        });
        order.truncate(enough.map_or(order.len(), |last| last + 1));
    }
    let total: f64 = order.iter().map(weight).sum();
    let mut uniform = [0.0];
    philox::fill_uniform(sampling.seed, drawn, &mut uniform);
    let mut left = f64::from(uniform[0]) * total;
    let drawn = order.iter().find(|token| {
        left -= weight(token);
        left < 0.0
    });
    drawn.or(order.first()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sampling: Sampling) -> Vec<u32> {
        // Shares of 0.4, 0.3, 0.2 and 0.1, not in their order.
        let logits = [0.2_f32, 0.4, 0.1, 0.3].map(f32::ln);
        let all: std::collections::BTreeSet<_> =
            (0..400).map(|i| choose(&logits, sampling, i)).collect();
        all.into_iter().collect()
    }

    #[test]
    fn only_what_is_kept_is_drawn() {
        let all = Sampling {
            temperature: 1.0,
            ..Sampling::default()
        };
        assert_eq!(drawn(all), [0, 1, 2, 3]);
        let top_k = Some(2);
        assert_eq!(drawn(Sampling { top_k, ..all }), [1, 3]);
        for (top_p, kept) in [
            (0.05, &[1][..]),
            (0.39, &[1]),
            (0.41, &[1, 3]),
            (0.75, &[0, 1, 3]),
            (0.95, &[0, 1, 2, 3]),
        ] {
            assert_eq!(drawn(Sampling { top_p, ..all }), kept, "{top_p}");
        }
        // A share is one of what top_k has left.
        let both = Sampling {
            top_k,
            top_p: 0.5,
            ..all
        };
        assert_eq!(drawn(both), [1]);
        let coldest = Sampling::default();
        assert_eq!(drawn(coldest), [1]);
    }
}
