//! Causal language models of whatever family, to programs that train one or sample from it.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use highwater::nn::QuantizedLinear;
use highwater::op::WeightFormat;
use highwater::{Engine, Module, Result, Tensor};
use highwater_memory::Files;

#[cfg(doc)]
use crate::language::cache::CachedLayer;
use crate::language::cache::{Cached, KeyValueShape};
use crate::language::config::{ConfigError, DecoderConfig, Gpt2Config, family, read};

/// Rows in which documents lie one after the other, and do not see one another. What pads a row is one document
/// more, whose targets are -100.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    /// Token ids `[B, T]`, `U32` or `I64`.
    pub tokens: &'a Tensor,
    /// What follows each token, `[B, T]`, `I64`; -100 where nothing is learnt.
    pub targets: &'a Tensor,
    /// Lengths of the documents of each row, `[B, N]`, `U32` or `I64`, 0 for none; what is left of a row behind
    /// them is one document more.
    pub lengths: &'a Tensor,
    /// Position of each token in its document, from 0: `[B, T]`, `I64` or `U32`.
    pub positions: &'a Tensor,
}

/// A model that tells of each token what follows it, from the tokens up to it.
pub trait CausalLm: Module + Debug {
    /// The engine that the model belongs to.
    fn engine(&self) -> &Engine;

    /// What it was built from.
    fn architecture(&self) -> &dyn Architecture;

    /// Mean cross-entropy of `targets` `[B, T]` after `tokens` `[B, T]`, in nats: a scalar.
    ///
    /// # Errors
    /// [`highwater::Error`] if T is above [`Architecture::max_length`]; a token out of range stops the
    /// step.
    fn loss(&self, tokens: &Tensor, targets: &Tensor) -> Result<Tensor> {
        self.smoothed_loss(tokens, targets, 0.0)
    }

    /// [`CausalLm::loss`] with a share `label_smoothing` of each target's probability spread over all tokens, as
    /// `torch.nn.functional.cross_entropy` has it.
    ///
    /// # Errors
    /// As [`CausalLm::loss`].
    fn smoothed_loss(
        &self,
        tokens: &Tensor,
        targets: &Tensor,
        label_smoothing: f64,
    ) -> Result<Tensor>;

    /// Mean cross-entropy of the targets that are not -100, in nats, where each document is read as if it were
    /// alone: a scalar, NaN if all are -100. Lengths and positions must say the same. They are read when the step
    /// runs: one plan holds for any.
    ///
    /// # Errors
    /// [`highwater::Error`] if the shapes do not fit; a token or a position out of range stops the step, as do
    /// lengths of more than a row where attention reads them (capped attention, Gemma 2's, goes by positions).
    fn packed_loss(&self, packed: &Packed<'_>) -> Result<Tensor> {
        self.smoothed_packed_loss(packed, 0.0)
    }

    /// [`CausalLm::packed_loss`] with label smoothing, as in [`CausalLm::smoothed_loss`].
    ///
    /// # Errors
    /// As [`CausalLm::packed_loss`].
    fn smoothed_packed_loss(&self, packed: &Packed<'_>, label_smoothing: f64) -> Result<Tensor>;

    /// Logits `[V]` of what follows position `at` of the first sequence of `tokens` `[1, T]`.
    ///
    /// # Errors
    /// As [`CausalLm::loss`].
    fn next_logits(&self, tokens: &Tensor, at: usize) -> Result<Tensor>;

    /// What each layer keeps of a token for those behind it ([`CausalLm::cached_logits`]); none where sequences
    /// are always read whole.
    fn key_values(&self) -> Option<Vec<KeyValueShape>> {
        None
    }

    /// Whether what is kept of a text of so many tokens is what a longer one has at the same positions; else that is
    /// read anew.
    fn keeps_positions(&self, _tokens: usize, _longer: usize) -> bool {
        true
    }

    /// [`CausalLm::next_logits`] beside keys and values that are kept: of a prompt `[1, T]` of the cache's length,
    /// whose own are left there; or of one token `[1, 1]`, which reads them. For models of which
    /// [`CausalLm::key_values`] says what they keep: each layer calls [`CachedLayer::attend`].
    ///
    /// # Errors
    /// As [`CausalLm::next_logits`]; [`highwater::Error::Internal`] of other models.
    fn cached_logits(&self, _tokens: &Tensor, _at: usize, _cached: &Cached<'_>) -> Result<Tensor> {
        Err(highwater::Error::Internal(
            "this model keeps no keys and values".into(),
        ))
    }

    /// Gives back memory that is held beside parameters and made again when it is needed: tables of positions, which
    /// would keep the room below them from others.
    fn release(&self) {}

    /// The layers whose weights are held in few bits, by name.
    fn held(&self) -> Vec<(String, QuantizedLinear)> {
        Vec::new()
    }
}

/// What such a model is built from: its configuration, checked.
pub trait Architecture: Debug + Send + Sync {
    /// Number of tokens.
    fn vocab_size(&self) -> usize;

    /// The longest sequence, in tokens.
    fn max_length(&self) -> usize;

    /// Number of layers, one after the other.
    fn depth(&self) -> usize;

    /// Number of parameters, each counted once.
    fn parameter_count(&self) -> u64;

    /// What the names of parameters begin with in files of the whole model, and not in files without the
    /// head.
    fn base_prefix(&self) -> &'static str;

    /// What the names of a layer's parameters begin with, before its number.
    fn layer_prefix(&self) -> &'static str;

    /// The name of the token embedding, which is the head too where models are tied.
    fn embedding_name(&self) -> &'static str;

    /// The field of its `config.json` that says how long sequences may be.
    fn max_length_field(&self) -> &'static str {
        "max_position_embeddings"
    }

    /// The largest probability of dropout that it has.
    fn dropout(&self) -> f64;

    /// The same with one probability for every dropout.
    fn with_dropout(&self, probability: f64) -> Arc<dyn Architecture>;

    /// The `config.json`, as Hugging Face has it.
    fn to_json(&self) -> String;

    /// A model with initial weights.
    ///
    /// # Errors
    /// [`highwater::Error::State`] if there is no room.
    fn build(&self, engine: &Engine) -> Result<Box<dyn CausalLm>>;

    /// A model whose projections' weights are held in few bits, and zero: [`CausalLm::held`] has them filled.
    ///
    /// # Errors
    /// As [`Architecture::build`]; [`highwater::Error::Internal`] for a family of which none is built.
    fn build_held(&self, _engine: &Engine, _format: WeightFormat) -> Result<Box<dyn CausalLm>> {
        Err(highwater::Error::Internal(
            "weights of this family cannot be quantized".into(),
        ))
    }

    /// Whether there is such a model.
    fn can_be_held(&self) -> bool {
        false
    }
}

/// Reads a `config.json` of any family that is known.
///
/// # Errors
/// [`ConfigError`], naming the file and the field.
pub fn read_architecture(
    files: &dyn Files,
    path: &Path,
) -> Result<Arc<dyn Architecture>, ConfigError> {
    read(files, path, |text| {
        let architecture: Arc<dyn Architecture> = match family(text).as_deref() {
            Some("gpt2") => Arc::new(Gpt2Config::from_json(text)?),
            _ => Arc::new(DecoderConfig::from_json(text)?),
        };
        Ok(architecture)
    })
}

/// A built-in architecture by its name.
///
/// # Errors
/// [`ConfigError::UnknownPreset`], with the name most like it.
pub fn preset(name: &str) -> Result<Arc<dyn Architecture>, ConfigError> {
    match DecoderConfig::preset(name) {
        Some(config) => Ok(Arc::new(config)),
        None => Ok(Arc::new(Gpt2Config::preset(name)?)),
    }
}
