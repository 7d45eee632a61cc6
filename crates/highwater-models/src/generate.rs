//! Sampling text from a model, a token at a time.

use std::ops::ControlFlow;

use crate::language::cache::KeyValueCache;
use crate::language::causal::CausalLm;
use highwater::{DType, Error, Result, no_grad, philox};

/// The least length of windows.
const SHORTEST: usize = 32;

/// The length that a text of so many tokens is filled up to, for a model that has positions for `longest`.
pub fn window_length(tokens: usize, longest: usize) -> usize {
    tokens.next_power_of_two().max(SHORTEST).min(longest)
}

/// How to choose tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token always; 1 draws from the model's distribution.
    pub temperature: f64,
    /// Only so many of the likeliest tokens are drawn from; all without it.
    pub top_k: Option<usize>,
    /// Only the fewest of the likeliest tokens are drawn from that have this share together; all at 1.
    pub top_p: f64,
    /// Only tokens are drawn from that are at least so likely, as a share of the likeliest; all at 0.
    pub min_p: f64,
    /// Logits of tokens that the text has already are divided by this if they are positive, else multiplied: above 1
    /// the text repeats itself less. 1 leaves them.
    pub repetition_penalty: f64,
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
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
            context: usize::MAX,
        }
    }
}

/// Continues `prompt` by `count` tokens, or until `on_token`, which is shown each, says to stop. Runs inside the
/// engine's budget, with keys and values kept where that has room for them: see [`Continuation`]. Leaves the model
/// in training mode.
///
/// # Errors
/// [`Error`] for an empty prompt, a token out of range, or a budget that is too small; [`Error::NonFinite`] for
/// logits that are not finite.
pub fn generate(
    model: &dyn CausalLm,
    prompt: &[u32],
    count: usize,
    sampling: Sampling,
    mut on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Vec<u32>> {
    let mut tokens = prompt.to_vec();
    model.eval();
    let mut continuation = Continuation::new(model, sampling.context);
    // Nothing is kept for a token that none follows.
    continuation.keeps &= count > 1;
    let mut draw = || {
        check(prompt)?;
        for drawn in 0..count as u64 {
            let mut logits = continuation.logits(&tokens)?;
            check_finite(&logits)?;
            penalise(&mut logits, &tokens, sampling.repetition_penalty);
            let token = choose(&logits, sampling, drawn);
            tokens.push(token);
            if on_token(token).is_break() {
                break;
            }
        }
        Ok(())
    };
    let drawn = draw();
    model.train(true);
    drawn.map(|()| tokens)
}

/// What a model says of texts that grow. Where a text goes on by one token, that one alone is computed: keys and
/// values of those before it are kept, in buffers of the engine, which go with this. Texts are read whole, by
/// [`CausalLm::next_logits`], where the model keeps none ([`CausalLm::key_values`]), where the budget has no room for
/// them, and where they are longer than the context, of which each token is at another position every time.
///
/// Windows and buffers have few different lengths, so that few plans are made.
#[derive(Debug)]
pub struct Continuation<'a> {
    model: &'a dyn CausalLm,
    context: usize,
    keeps: bool,
    /// What was read of the last text, and what is kept of it.
    read: Vec<u32>,
    cache: Option<KeyValueCache>,
}

impl<'a> Continuation<'a> {
    /// Of a model, by the last `context` tokens, or as many as it has positions. The model is to be in evaluation
    /// mode.
    pub fn new(model: &'a dyn CausalLm, context: usize) -> Self {
        Self {
            model,
            context: context.clamp(1, model.architecture().max_length()),
            keeps: true,
            read: Vec::new(),
            cache: None,
        }
    }

    /// Logits of what follows a text, one for each token of the vocabulary. What is pending in the engine and
    /// writes (running statistics, gradients that add up) is computed with it.
    ///
    /// # Errors
    /// [`Error`] for an empty text, a token out of range, or a budget that is too small for whole texts.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        check(tokens)?;
        if self.keeps && tokens.len() <= self.context {
            match no_grad(|| self.kept(tokens)) {
                Ok(Some(logits)) => return Ok(logits),
                Ok(None) => self.keeps = false,
                Err(error) => {
                    self.model.release();
                    // What has room without a cache is to go on.
                    if !is_full(&error) {
                        return Err(error);
                    }
                    self.keeps = false;
                }
            }
        }
        self.forget();
        no_grad(|| self.whole(tokens))
    }

    /// Gives back what is kept, and what lies behind it in memory.
    fn forget(&mut self) {
        if self.cache.take().is_some() {
            self.model.release();
        }
    }

    /// [`Continuation::logits`] of a text within the context, by what is kept; none if the model keeps nothing.
    fn kept(&mut self, tokens: &[u32]) -> Result<Option<Vec<f32>>> {
        let (model, length) = (self.model, self.padded(tokens.len()));
        let goes_on = |cache: &KeyValueCache| {
            cache.tokens() + 1 == tokens.len()
                && tokens.starts_with(&self.read)
                && model.keeps_positions(cache.tokens(), tokens.len())
        };
        let logits = if let Some(mut cache) = self.cache.take_if(|cache| goes_on(cache)) {
            let last = model
                .engine()
                .indices(&tokens[tokens.len() - 1..], [1, 1])?;
            let cached = cache.next(model.engine(), length)?;
            let logits = model.cached_logits(&last, 0, &cached)?;
            let logits = cache.evaluate(&logits)?;
            self.cache = Some(cache);
            logits
        } else {
            self.forget();
            let Some(shapes) = model.key_values() else {
                return Ok(None);
            };
            let vocabulary = model.architecture().vocab_size();
            let mut cache = KeyValueCache::new(model.engine(), &shapes, vocabulary, length)?;
            let mut window = tokens.to_vec();
            window.resize(length, 0);
            let window = model.engine().indices(&window, [1, length])?;
            let cached = cache.prompt(tokens.len());
            let logits = model.cached_logits(&window, tokens.len() - 1, &cached)?;
            let logits = cache.evaluate(&logits)?;
            self.cache = Some(cache);
            logits
        };
        self.read.clear();
        self.read.extend_from_slice(tokens);
        Ok(Some(logits))
    }

    /// [`Continuation::logits`] by the window of the last tokens alone.
    fn whole(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        let seen = &tokens[tokens.len().saturating_sub(self.context)..];
        let length = self.padded(seen.len());
        let mut window = seen.to_vec();
        // What stands behind the last token is not seen by it: attention is causal.
        window.resize(length, 0);
        let window = self.model.engine().indices(&window, [1, length])?;
        let logits = self.model.next_logits(&window, seen.len() - 1)?;
        match logits.dtype() {
            DType::F32 => logits.to_vec::<f32>(),
            _ => logits.to_dtype(DType::F32)?.to_vec(),
        }
    }

    /// The length that so many tokens are filled up to.
    fn padded(&self, tokens: usize) -> usize {
        window_length(tokens, self.model.architecture().max_length())
    }
}

impl Drop for Continuation<'_> {
    fn drop(&mut self) {
        self.cache = None;
        // Texts that were read whole have left tables, too: what a training step makes next would lie behind them.
        self.model.release();
    }
}

/// That something can follow.
fn check(tokens: &[u32]) -> Result<()> {
    if tokens.is_empty() {
        return Err(Error::Saved("a prompt needs at least one token".to_owned()));
    }
    Ok(())
}

/// That there is something to choose by.
fn check_finite(logits: &[f32]) -> Result<()> {
    match logits.iter().find(|logit| !logit.is_finite()) {
        Some(logit) => Err(Error::NonFinite {
            what: "a logit of the next token",
            node: format!("lm_head ({logit})"),
        }),
        None => Ok(()),
    }
}

/// Whether there was no room.
fn is_full(error: &Error) -> bool {
    matches!(
        error,
        Error::OverBudget { .. }
            | Error::State { .. }
            | Error::HostFull { .. }
            | Error::DiskFull { .. }
            | Error::Arena(_)
    )
}

/// Makes tokens less likely that a text has, as `RepetitionPenaltyLogitsProcessor` of transformers.
#[expect(
    clippy::float_cmp,
    reason = "1 changes nothing, and the text need not be sorted for each token"
)]
fn penalise(logits: &mut [f32], tokens: &[u32], penalty: f64) {
    if penalty == 1.0 {
        return;
    }
    let penalty = penalty as f32;
    let mut seen = tokens.to_vec();
    seen.sort_unstable();
    seen.dedup();
    for token in seen {
        let logit = &mut logits[token as usize];
        *logit = if *logit < 0.0 {
            *logit * penalty
        } else {
            *logit / penalty
        };
    }
}

/// The next token. What is left of the distribution after temperature, [`Sampling::top_k`], [`Sampling::top_p`] and
/// [`Sampling::min_p`], in this order as in transformers, is drawn from.
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
    let is_cut = kept < order.len() || sampling.top_p < 1.0 || sampling.min_p > 0.0;
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
        // The likeliest has the weight 1.
        order.retain(|token| weight(token) >= sampling.min_p);
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
        // 0.1 of the likeliest, which has 0.4, are 0.25 of it; 0.2 are half.
        for (min_p, kept) in [
            (0.2, &[0, 1, 2, 3][..]),
            (0.3, &[0, 1, 3]),
            (0.6, &[1, 3]),
            (1.0, &[1]),
        ] {
            assert_eq!(drawn(Sampling { min_p, ..all }), kept, "{min_p}");
        }
        let coldest = Sampling::default();
        assert_eq!(drawn(coldest), [1]);
    }

    #[test]
    fn what_was_said_becomes_less_likely() {
        let mut logits = [2.0, -2.0, 0.5, 3.0];
        let less = [2.0, -3.0, 0.5, 2.0].map(f32::to_bits);
        penalise(&mut logits, &[3, 1, 1, 3], 1.5);
        assert_eq!(logits.map(f32::to_bits), less);
        penalise(&mut logits, &[0, 1], 1.0);
        assert_eq!(logits.map(f32::to_bits), less);
    }
}
