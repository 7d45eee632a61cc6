//! A `config.json` of one of the families of decoders.

use serde_json::{Map, Value, json};

use super::families::family_of;
use super::fields::Fields;
use super::{ConfigError, TOLD};
use crate::json;

pub use super::shape::{Biases, DecoderLayer, DecoderShape, Gate};

/// A `config.json` of one of the families of decoders, and what it says. It is written back as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    fields: Map<String, Value>,
    shape: DecoderShape,
}

impl DecoderConfig {
    /// A built-in configuration by its name, if there is one: `llama-nano`, and `llama-1b` of TinyLlama's shape.
    pub fn preset(name: &str) -> Option<Self> {
        let llama = |own: Value| {
            let mut fields = json!({
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_act": "silu",
                "rms_norm_eps": 1e-5,
                "rope_theta": 10000.0,
                "torch_dtype": "float32",
            });
            // Both are objects.
            if let (Value::Object(fields), Value::Object(own)) = (&mut fields, own) {
                fields.extend(own);
            }
            Self::from_json(&fields.to_string()).ok()
        };
        match name {
            "llama-nano" => llama(json!({
                "vocab_size": 256,
                "hidden_size": 128,
                "intermediate_size": 352,
                "num_hidden_layers": 5,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 256,
                // Rows of width 128 need larger weights than those of 2048, or nothing is learned for long.
                "initializer_range": 0.06,
                "tie_word_embeddings": true,
            })),
            "llama-1b" => llama(json!({
                "vocab_size": 32000,
                "hidden_size": 2048,
                "intermediate_size": 5632,
                "num_hidden_layers": 22,
                "num_attention_heads": 32,
                "num_key_value_heads": 4,
                "max_position_embeddings": 2048,
                "initializer_range": 0.02,
                "tie_word_embeddings": false,
            })),
            _ => None,
        }
    }

    /// Parses a `config.json` and validates it. A missing field takes Hugging Face's default for the family.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        let fields = json::object(text).map_err(|problem| ConfigError::Json { problem })?;
        Self::of_fields(fields)
    }

    fn of_fields(fields: Map<String, Value>) -> Result<Self, ConfigError> {
        let read = Fields(&fields);
        if let Some(value) = fields
            .get("quantization_config")
            .filter(|value| !value.is_null())
        {
            return Err(ConfigError::Unsupported {
                field: "quantization_config".to_owned(),
                value: value.to_string().chars().take(TOLD).collect(),
                expected: "null".to_owned(),
            });
        }
        let shape = family_of(read)?.shape(read)?;
        shape.validate()?;
        Ok(Self { fields, shape })
    }

    /// The `config.json`, as it was read.
    pub fn to_json(&self) -> String {
        // A map with string keys and finite numbers always has a JSON form.
        serde_json::to_string_pretty(&self.fields).unwrap_or_default() + "\n"
    }

    /// What it says.
    pub fn shape(&self) -> &DecoderShape {
        &self.shape
    }

    /// The same with another probability of dropout, from 0 to below 1.
    #[must_use]
    pub fn with_dropout(&self, probability: f64) -> Self {
        let mut config = self.clone();
        config.shape.dropout = probability;
        let of = |field| (field, Value::from(probability));
        for (field, value) in [of("attention_dropout"), of("resid_pdrop"), of("embd_pdrop")] {
            if field == "attention_dropout" || config.fields.contains_key(field) {
                config.fields.insert(field.to_owned(), value);
            }
        }
        config
    }
}
