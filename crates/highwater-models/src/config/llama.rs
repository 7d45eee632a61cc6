//! Llama's configuration, which Mistral's models share.

use std::fmt::Display;

use serde::Serialize;
use serde_json::{Map, Value};

use super::limits::{HEAD_WIDTH_MAX, PARAMETERS_MAX, require};
use super::{ConfigError, take};
use crate::rope::{Rope, RopeScaling};

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

/// Hugging Face's `LlamaConfig`, field for field, and what `MistralConfig` adds. Fields unknown here are
/// kept and written back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LlamaConfig {
    /// The classes whose weights these are: `LlamaForCausalLM`.
    pub architectures: Vec<String>,
    /// The family: `llama` or `mistral`.
    pub model_type: String,
    /// Number of tokens.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width between the halves of the MLP.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Heads of queries in a block.
    pub num_attention_heads: usize,
    /// Heads of keys and values, each of which so many heads of queries share.
    pub num_key_value_heads: usize,
    /// Width of a head; the width of the stream over the heads when null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Hugging Face's name for the activation: `silu`.
    pub hidden_act: String,
    /// The longest sequence.
    pub max_position_embeddings: usize,
    /// Standard deviation of the weights at the start.
    pub initializer_range: f64,
    /// What RMS norm adds to the mean of the squares.
    pub rms_norm_eps: f64,
    /// Whether the logits are made with the token embedding.
    pub tie_word_embeddings: bool,
    /// The wavelengths of positions grow up to about this.
    pub rope_theta: f64,
    /// How the frequencies of positions are changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
    /// Whether the projections of attention have biases.
    pub attention_bias: bool,
    /// Whether the projections of the MLP have biases.
    pub mlp_bias: bool,
    /// Dropout: Hugging Face's is of attention weights, here it is of what is added to the residual stream.
    pub attention_dropout: f64,
    /// How many tokens each sees up to itself; all when null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sliding_window: Option<usize>,
    /// Element type of the stored weights; newer files call it `dtype`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_dtype: Option<String>,
    /// Everything else that the file had.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for LlamaConfig {
    /// TinyLlama's shape: 1.1 billion parameters.
    fn default() -> Self {
        Self {
            architectures: vec!["LlamaForCausalLM".to_owned()],
            model_type: "llama".to_owned(),
            vocab_size: 32_000,
            hidden_size: 2048,
            intermediate_size: 5632,
            num_hidden_layers: 22,
            num_attention_heads: 32,
            num_key_value_heads: 4,
            head_dim: None,
            hidden_act: "silu".to_owned(),
            max_position_embeddings: 2048,
            initializer_range: 0.02,
            rms_norm_eps: 1e-5,
            tie_word_embeddings: false,
            rope_theta: 10_000.0,
            rope_scaling: None,
            attention_bias: false,
            mlp_bias: false,
            attention_dropout: 0.0,
            sliding_window: None,
            torch_dtype: Some("float32".to_owned()),
            other: Map::new(),
        }
    }
}

impl LlamaConfig {
    /// A built-in configuration by its name, if there is one.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "llama-nano" => Some(Self {
                vocab_size: 256,
                hidden_size: 128,
                intermediate_size: 352,
                num_hidden_layers: 5,
                num_attention_heads: 4,
                num_key_value_heads: 2,
                max_position_embeddings: 256,
                // Rows of width 128 need larger weights than those of 2048, or nothing is learned for long.
                initializer_range: 0.06,
                tie_word_embeddings: true,
                ..Self::default()
            }),
            "llama-1b" => Some(Self::default()),
            _ => None,
        }
    }

    /// Parses a `config.json` and validates it. A missing field takes Hugging Face's default.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        let mut fields: Map<String, Value> =
            serde_json::from_str(text).map_err(|e| ConfigError::Json {
                problem: e.to_string(),
            })?;
        let fields = &mut fields;
        let newer_dtype = take(fields, "dtype", None)?;
        let heads = take(fields, "num_attention_heads", 32)?;
        let (theta, scaling) = rope(fields)?;
        let config = Self {
            architectures: take(fields, "architectures", Self::default().architectures)?,
            model_type: take(fields, "model_type", String::new())?,
            vocab_size: take(fields, "vocab_size", 32_000)?,
            hidden_size: take(fields, "hidden_size", 4096)?,
            intermediate_size: take(fields, "intermediate_size", 11_008)?,
            num_hidden_layers: take(fields, "num_hidden_layers", 32)?,
            num_attention_heads: heads,
            num_key_value_heads: take(fields, "num_key_value_heads", heads)?,
            head_dim: take(fields, "head_dim", None)?,
            hidden_act: take(fields, "hidden_act", "silu".to_owned())?,
            max_position_embeddings: take(fields, "max_position_embeddings", 2048)?,
            initializer_range: take(fields, "initializer_range", 0.02)?,
            rms_norm_eps: take(fields, "rms_norm_eps", 1e-6)?,
            tie_word_embeddings: take(fields, "tie_word_embeddings", false)?,
            rope_theta: theta,
            rope_scaling: scaling,
            attention_bias: take(fields, "attention_bias", false)?,
            mlp_bias: take(fields, "mlp_bias", false)?,
            attention_dropout: take(fields, "attention_dropout", 0.0)?,
            sliding_window: take(fields, "sliding_window", None)?,
            torch_dtype: take(fields, "torch_dtype", newer_dtype)?,
            other: std::mem::take(fields),
        };
        config.validate()?;
        Ok(config)
    }

    /// The `config.json`, as Hugging Face's own is laid out.
    pub fn to_json(&self) -> String {
        // A map with string keys and finite numbers always has a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Width of a head.
    pub fn head_width(&self) -> usize {
        let even = self.hidden_size / self.num_attention_heads.max(1);
        self.head_dim.unwrap_or(even)
    }

    /// What rotates queries and keys.
    pub fn rope(&self) -> Rope {
        Rope {
            width: self.head_width(),
            theta: self.rope_theta,
            max_length: self.max_position_embeddings,
            scaling: self.rope_scaling.clone().unwrap_or_default(),
        }
    }

    /// Number of parameters, a tied head counted once; `u64::MAX` if there are more.
    pub fn parameter_count(&self) -> u64 {
        let times = |a: usize, b: usize| (a as u64).saturating_mul(b as u64);
        let sum = |parts: &[u64]| parts.iter().fold(0, |sum: u64, &x| sum.saturating_add(x));
        let (width, head) = (self.hidden_size, self.head_width());
        let inner = self.intermediate_size;
        let queries = self.num_attention_heads.saturating_mul(head);
        let keys = self.num_key_value_heads.saturating_mul(head);
        let bias = |wanted: bool, parts: &[usize]| {
            let parts: Vec<u64> = parts.iter().map(|&part| part as u64).collect();
            if wanted { sum(&parts) } else { 0 }
        };
        let block = sum(&[
            times(2 * width, queries),
            times(2 * width, keys),
            bias(self.attention_bias, &[queries, keys, keys, width]),
            times(3 * width, inner),
            bias(self.mlp_bias, &[inner, inner, width]),
            2 * width as u64,
        ]);
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        sum(&[
            times(self.vocab_size, width).saturating_mul(tables),
            block.saturating_mul(self.num_hidden_layers as u64),
            width as u64,
        ])
    }

    /// Checks that this is a model that can be built.
    ///
    /// # Errors
    /// [`ConfigError::Range`] or [`ConfigError::Unsupported`] for the first field at fault.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let supported = |ok: bool, field: &str, value: Value, expected: &str| {
            ok.then_some(()).ok_or_else(|| ConfigError::Unsupported {
                field: field.to_owned(),
                value: value.to_string().chars().take(super::TOLD).collect(),
                expected: expected.to_owned(),
            })
        };
        let family = ["llama", "mistral"].contains(&self.model_type.as_str());
        let value = Value::from(self.model_type.as_str());
        supported(family, "model_type", value, "\"llama\" or \"mistral\"")?;
        let value = Value::from(self.hidden_act.as_str());
        supported(self.hidden_act == "silu", "hidden_act", value, "\"silu\"")?;
        let quantized = self.other.get("quantization_config");
        if let Some(value) = quantized.filter(|value| !value.is_null()) {
            supported(false, "quantization_config", value.clone(), "null")?;
        }
        let extents = [
            self.vocab_size,
            self.hidden_size,
            self.intermediate_size,
            self.num_hidden_layers,
            self.num_attention_heads,
            self.num_key_value_heads,
            self.max_position_embeddings,
        ];
        for ((field, max), value) in LIMITS.into_iter().zip(extents) {
            let expected = || format!("a number from 1 to {max}");
            require((1..=max).contains(&value), field, &value, expected)?;
        }
        self.validate_heads()?;
        let dropout = self.attention_dropout;
        require(
            (0.0..1.0).contains(&dropout),
            "attention_dropout",
            &dropout,
            || "a number from 0 to below 1".to_owned(),
        )?;
        for (field, value) in [
            ("rms_norm_eps", self.rms_norm_eps),
            ("initializer_range", self.initializer_range),
        ] {
            let expected = || "a number above 0 that an f32 can hold, at most 1".to_owned();
            require(value as f32 > 0.0 && value <= 1.0, field, &value, expected)?;
        }
        self.validate_rope()?;
        let count = self.parameter_count();
        require(
            count <= PARAMETERS_MAX,
            "hidden_size",
            &self.hidden_size,
            || format!("less: the model has {count} parameters, and may have {PARAMETERS_MAX}"),
        )
    }

    fn validate_heads(&self) -> Result<(), ConfigError> {
        let (heads, shared) = (self.num_attention_heads, self.num_key_value_heads);
        if self.head_dim.is_none() {
            let width = self.hidden_size;
            let even = width.is_multiple_of(heads);
            let expected = || format!("a divisor of hidden_size, {width}");
            require(even, "num_attention_heads", &heads, expected)?;
        }
        let even = heads.is_multiple_of(shared);
        let expected = || format!("a divisor of num_attention_heads, {heads}");
        require(even, "num_key_value_heads", &shared, expected)?;
        let head = self.head_width();
        let fits = head.is_multiple_of(2) && (2..=HEAD_WIDTH_MAX).contains(&head);
        require(fits, "head_dim", &head, || {
            format!("an even number from 2 to {HEAD_WIDTH_MAX}")
        })?;
        let window = self.sliding_window;
        require(window != Some(0), "sliding_window", &0, || {
            "1 or more".to_owned()
        })
    }

    fn validate_rope(&self) -> Result<(), ConfigError> {
        let above_0 = |field, value: f64| {
            let ok = value > 0.0 && value.is_finite();
            require(ok, field, &value as &dyn Display, || {
                "a number above 0".to_owned()
            })
        };
        // Wavelengths grow with it only above 1.
        let ok = self.rope_theta > 1.0 && self.rope_theta.is_finite();
        let expected = || "a number above 1".to_owned();
        require(ok, "rope_theta", &self.rope_theta, expected)?;
        match self.rope_scaling.clone().unwrap_or_default() {
            RopeScaling::Default => Ok(()),
            RopeScaling::Linear { factor } => above_0("factor", factor),
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings: original,
                attention_factor,
                beta_fast,
                beta_slow,
            } => {
                above_0("factor", factor)?;
                above_0("attention_factor", attention_factor.unwrap_or(1.0))?;
                above_0("beta_fast", beta_fast.unwrap_or(32.0))?;
                above_0("beta_slow", beta_slow.unwrap_or(1.0))?;
                let original = original.unwrap_or(1) as f64;
                above_0("original_max_position_embeddings", original)
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => {
                above_0("factor", factor)?;
                above_0("low_freq_factor", low)?;
                require(
                    high > low && high.is_finite(),
                    "high_freq_factor",
                    &high,
                    || format!("more than low_freq_factor, {low}"),
                )?;
                above_0("original_max_position_embeddings", original as f64)
            }
        }
    }
}

/// The base and the scaling of positions: fields of their own in older files, `rope_parameters` in newer
/// ones.
fn rope(fields: &mut Map<String, Value>) -> Result<(f64, Option<RopeScaling>), ConfigError> {
    let mut theta = take(fields, "rope_theta", 10_000.0)?;
    let scaling: Option<Map<String, Value>> = take(fields, "rope_scaling", None)?;
    let newer: Option<Map<String, Value>> = take(fields, "rope_parameters", None)?;
    let Some(mut scaling) = newer.or(scaling) else {
        return Ok((theta, None));
    };
    theta = take(&mut scaling, "rope_theta", theta)?;
    // The oldest name of the field.
    if let Some(kind) = scaling.shift_remove("type") {
        scaling.entry("rope_type").or_insert(kind);
    }
    let kind = scaling
        .get("rope_type")
        .cloned()
        .unwrap_or("default".into());
    if kind == "default" {
        return Ok((theta, None));
    }
    let known = ["linear", "llama3", "yarn"].map(Value::from);
    if !known.contains(&kind) {
        return Err(ConfigError::Unsupported {
            field: "rope_type".to_owned(),
            value: kind.to_string(),
            expected: "\"default\", \"linear\", \"llama3\" or \"yarn\"".to_owned(),
        });
    }
    let mut all = Map::from_iter([("rope_scaling".to_owned(), Value::from(scaling))]);
    Ok((theta, take(&mut all, "rope_scaling", None)?))
}
