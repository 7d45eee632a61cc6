//! Decoders as causal language models.

use std::sync::Arc;

use highwater::nn::QuantizedLinear;
use highwater::op::WeightFormat;
use highwater::{Engine, Result, Tensor};

use super::Decoder;
use crate::language::cache::{Cached, KeyValueShape};
use crate::language::causal::{Architecture, CausalLm, Packed};
use crate::language::config::DecoderConfig;
use crate::language::rope::Rope;

impl CausalLm for Decoder {
    fn engine(&self) -> &Engine {
        Self::engine(self)
    }

    fn architecture(&self) -> &dyn Architecture {
        self.config()
    }

    fn smoothed_loss(
        &self,
        tokens: &Tensor,
        targets: &Tensor,
        label_smoothing: f64,
    ) -> Result<Tensor> {
        Self::smoothed_loss(self, tokens, targets, label_smoothing)
    }

    fn smoothed_packed_loss(&self, packed: &Packed<'_>, label_smoothing: f64) -> Result<Tensor> {
        Self::smoothed_packed_loss(self, packed, label_smoothing)
    }

    fn next_logits(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        Self::next_logits(self, tokens, at)
    }

    fn key_values(&self) -> Option<Vec<KeyValueShape>> {
        Some(Self::key_values(self))
    }

    fn keeps_positions(&self, tokens: usize, longer: usize) -> bool {
        let mut switches = (self.config().shape().ropes.iter()).filter_map(Rope::switches_behind);
        switches.all(|last| (tokens > last) == (longer > last))
    }

    fn cached_logits(&self, tokens: &Tensor, at: usize, cached: &Cached<'_>) -> Result<Tensor> {
        Self::cached_logits(self, tokens, at, cached)
    }

    fn release(&self) {
        Self::release(self);
    }

    fn held(&self) -> Vec<(String, QuantizedLinear)> {
        Self::held(self)
    }
}

impl Architecture for DecoderConfig {
    fn vocab_size(&self) -> usize {
        self.shape().vocab_size
    }

    fn max_length(&self) -> usize {
        self.shape().max_position_embeddings
    }

    fn depth(&self) -> usize {
        self.shape().layers.len()
    }

    fn parameter_count(&self) -> u64 {
        self.shape().parameter_count()
    }

    fn base_prefix(&self) -> &'static str {
        "model."
    }

    fn layer_prefix(&self) -> &'static str {
        "model.layers."
    }

    fn embedding_name(&self) -> &'static str {
        "model.embed_tokens.weight"
    }

    fn dropout(&self) -> f64 {
        self.shape().dropout
    }

    fn with_dropout(&self, probability: f64) -> Arc<dyn Architecture> {
        Arc::new(Self::with_dropout(self, probability))
    }

    fn to_json(&self) -> String {
        Self::to_json(self)
    }

    fn build(&self, engine: &Engine) -> Result<Box<dyn CausalLm>> {
        Ok(Box::new(Decoder::new(engine, self.clone())?))
    }

    fn build_held(&self, engine: &Engine, format: WeightFormat) -> Result<Box<dyn CausalLm>> {
        Ok(Box::new(Decoder::quantized(engine, self.clone(), format)?))
    }

    fn can_be_held(&self) -> bool {
        true
    }
}
