//! What a decoder is made of: one description, which the families of models fill in (`families.rs`).

use super::ConfigError;
use super::limits::{HEAD_WIDTH_MAX, PARAMETERS_MAX, require};
use crate::language::rope::Rope;

/// The largest extents that a configuration may have.
const LIMITS: [(&str, usize); 7] = [
    ("vocab_size", 1 << 22),
    ("hidden_size", 1 << 16),
    ("intermediate_size", 1 << 18),
    ("num_hidden_layers", 1 << 10),
    ("num_attention_heads", 1 << 12),
    ("num_key_value_heads", 1 << 12),
    ("max_position_embeddings", 1 << 24),
];

/// A decoder, whatever its family calls the parts: blocks of attention and a gated MLP, each behind an RMS norm.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderShape {
    /// Number of tokens.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width between the halves of the MLP.
    pub intermediate_size: usize,
    /// Heads of queries in a block.
    pub num_attention_heads: usize,
    /// Heads of keys and values, each of which so many heads of queries share.
    pub num_key_value_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// The longest sequence.
    pub max_position_embeddings: usize,
    /// Standard deviation of the weights at the start.
    pub initializer_range: f64,
    /// What RMS norms add to the mean of the squares.
    pub rms_norm_eps: f64,
    /// Whether the logits are made with the token embedding.
    pub tie_word_embeddings: bool,
    /// Which projections have biases.
    pub biases: Biases,
    /// Whether queries, keys and values are one projection (`qkv_proj`), and gate and up another
    /// (`gate_up_proj`): Phi-3.
    pub is_fused: bool,
    /// Whether each head of queries and keys is normalised before it is rotated: Qwen3, Gemma 3.
    pub has_head_norms: bool,
    /// Whether weights of norms are what is added to 1: Gemma.
    pub norms_add_one: bool,
    /// Whether what attention and MLP answer is normalised too: Gemma 2 and 3.
    pub has_post_norms: bool,
    /// The function of the gate.
    pub gate: Gate,
    /// What token embeddings are multiplied by: Gemma.
    pub embedding_scale: Option<f64>,
    /// What scores are multiplied by.
    pub attention_scale: f64,
    /// Scores are `cap tanh(score / cap)`: Gemma 2.
    pub score_cap: Option<f64>,
    /// Logits likewise.
    pub logit_cap: Option<f64>,
    /// Dropout: Hugging Face's is of attention weights, here it is of what is added to the residual stream.
    pub dropout: f64,
    /// Ways to rotate queries and keys, which layers name.
    pub ropes: Vec<Rope>,
    /// The blocks, one after the other.
    pub layers: Vec<DecoderLayer>,
}

/// What sets a block apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderLayer {
    /// How many tokens each sees up to itself; all if there is none.
    pub window: Option<usize>,
    /// Which of the model's ways to rotate it has; none for a layer without positions.
    pub rope: Option<usize>,
}

/// Which projections have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Those of queries, keys and values.
    pub qkv: bool,
    /// That of what attention answers.
    pub output: bool,
    /// Those of the MLP.
    pub mlp: bool,
}

/// The function of an MLP's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x sigmoid(x)`.
    Silu,
    /// GELU by the error function.
    Gelu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

impl DecoderShape {
    /// Number of parameters, a tied head counted once; `u64::MAX` if there are more.
    pub fn parameter_count(&self) -> u64 {
        let times = |a: usize, b: usize| (a as u64).saturating_mul(b as u64);
        let sum = |parts: &[u64]| parts.iter().fold(0, |sum: u64, &x| sum.saturating_add(x));
        let (width, inner) = (self.hidden_size, self.intermediate_size);
        let queries = self.num_attention_heads.saturating_mul(self.head_dim);
        let keys = self.num_key_value_heads.saturating_mul(self.head_dim);
        let if_any = |wanted: bool, count: usize| if wanted { count as u64 } else { 0 };
        let norms = if self.has_post_norms { 4 } else { 2 };
        let block = sum(&[
            times(2 * width, queries),
            times(2 * width, keys),
            if_any(self.biases.qkv, queries.saturating_add(2 * keys)),
            if_any(self.biases.output, width),
            times(3 * width, inner),
            if_any(self.biases.mlp, (2 * inner).saturating_add(width)),
            times(norms, width),
            if_any(self.has_head_norms, 2 * self.head_dim),
        ]);
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        sum(&[
            times(self.vocab_size, width).saturating_mul(tables),
            block.saturating_mul(self.layers.len() as u64),
            width as u64,
        ])
    }

    /// Checks that this is a model that can be built.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let extents = [
            self.vocab_size,
            self.hidden_size,
            self.intermediate_size,
            self.layers.len(),
            self.num_attention_heads,
            self.num_key_value_heads,
            self.max_position_embeddings,
        ];
        for ((field, max), value) in LIMITS.into_iter().zip(extents) {
            let expected = || format!("a number from 1 to {max}");
            require((1..=max).contains(&value), field, &value, expected)?;
        }
        let (heads, shared) = (self.num_attention_heads, self.num_key_value_heads);
        let expected = || format!("a divisor of num_attention_heads, {heads}");
        require(
            heads.is_multiple_of(shared),
            "num_key_value_heads",
            &shared,
            expected,
        )?;
        let head = self.head_dim;
        let fits = head.is_multiple_of(2) && (2..=HEAD_WIDTH_MAX).contains(&head);
        require(fits, "head_dim", &head, || {
            format!("an even number from 2 to {HEAD_WIDTH_MAX}")
        })?;
        let is_empty = self.layers.iter().any(|layer| layer.window == Some(0));
        require(!is_empty, "sliding_window", &0, || "1 or more".to_owned())?;
        let dropout = self.dropout;
        require(
            (0.0..1.0).contains(&dropout),
            "attention_dropout",
            &dropout,
            || "a number from 0 to below 1".to_owned(),
        )?;
        let small = [
            ("rms_norm_eps", self.rms_norm_eps),
            ("initializer_range", self.initializer_range),
        ];
        for (field, value) in small {
            let expected = || "a number above 0 that an f32 can hold, at most 1".to_owned();
            require(value as f32 > 0.0 && value <= 1.0, field, &value, expected)?;
        }
        let above_0 = [
            ("query_pre_attn_scalar", Some(self.attention_scale)),
            ("attn_logit_softcapping", self.score_cap),
            ("final_logit_softcapping", self.logit_cap),
        ];
        for (field, value) in above_0 {
            let value = value.unwrap_or(1.0);
            let fits = value > 0.0 && (value as f32).is_finite();
            require(fits, field, &value, || "a number above 0".to_owned())?;
        }
        self.ropes.iter().try_for_each(Rope::validate)?;
        let count = self.parameter_count();
        require(
            count <= PARAMETERS_MAX,
            "hidden_size",
            &self.hidden_size,
            || format!("less: the model has {count} parameters, and may have {PARAMETERS_MAX}"),
        )
    }
}
