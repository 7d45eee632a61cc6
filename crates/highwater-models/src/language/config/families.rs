//! The families of decoders: what the fields of each one's `config.json` say, with Hugging Face's defaults.

use serde_json::{Map, Value};

use super::fields::{Fields, above_0, head_dim};
use super::limits::require;
use super::shape::{Biases, DecoderLayer, DecoderShape, Gate};
use super::{ConfigError, TOLD};
use crate::language::rope::{Positions, read_rope};

/// A family of models.
#[derive(Debug)]
pub(super) struct Family {
    /// Its `model_type`.
    name: &'static str,
    /// What its fields are where a file does not say.
    defaults: Defaults,
    /// What is its own.
    own: fn(Fields<'_>, &mut DecoderShape) -> Result<(), ConfigError>,
}

/// Hugging Face's defaults.
#[derive(Debug)]
struct Defaults {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    /// As many as heads of queries if there is none.
    num_key_value_heads: Option<usize>,
    /// The width of the stream over the heads if there is none.
    head_dim: Option<usize>,
    max_position_embeddings: usize,
    rms_norm_eps: f64,
    tie_word_embeddings: bool,
    rope_theta: f64,
    /// The field of the gate's function, and what it is.
    gate: (&'static str, &'static str),
    /// The length that positions were trained for, where that is not the longest.
    trained: Option<usize>,
    /// Whether a share of a head may be rotated.
    is_partial: bool,
}

const LLAMA: Defaults = Defaults {
    vocab_size: 32_000,
    hidden_size: 4096,
    intermediate_size: 11_008,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: None,
    head_dim: None,
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-6,
    tie_word_embeddings: false,
    rope_theta: 10_000.0,
    gate: ("hidden_act", "silu"),
    trained: None,
    is_partial: false,
};

const QWEN: Defaults = Defaults {
    vocab_size: 151_936,
    intermediate_size: 22_016,
    num_key_value_heads: Some(32),
    max_position_embeddings: 32_768,
    ..LLAMA
};

const GEMMA: Defaults = Defaults {
    vocab_size: 256_000,
    hidden_size: 3072,
    intermediate_size: 24_576,
    num_hidden_layers: 28,
    num_attention_heads: 16,
    num_key_value_heads: Some(16),
    head_dim: Some(256),
    max_position_embeddings: 8192,
    tie_word_embeddings: true,
    gate: ("hidden_act", "gelu_pytorch_tanh"),
    ..LLAMA
};

const GEMMA2: Defaults = Defaults {
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
    num_key_value_heads: Some(4),
    gate: ("hidden_activation", "gelu_pytorch_tanh"),
    ..GEMMA
};

static FAMILIES: [Family; 9] = [
    Family {
        name: "llama",
        defaults: LLAMA,
        own: |fields, shape| {
            let attention = fields.get("attention_bias", false)?;
            shape.biases = Biases {
                qkv: attention,
                output: attention,
                mlp: fields.get("mlp_bias", false)?,
            };
            Ok(())
        },
    },
    Family {
        name: "mistral",
        defaults: Defaults {
            intermediate_size: 14_336,
            num_key_value_heads: Some(8),
            max_position_embeddings: 131_072,
            ..LLAMA
        },
        own: |fields, shape| {
            let window = fields.nullable("sliding_window", 4096)?;
            slide(fields, shape, window, |_| true)
        },
    },
    Family {
        name: "qwen2",
        defaults: QWEN,
        own: |fields, shape| {
            shape.biases.qkv = true;
            qwen_windows(fields, shape)
        },
    },
    Family {
        name: "qwen3",
        defaults: Defaults {
            head_dim: Some(128),
            ..QWEN
        },
        own: |fields, shape| {
            let attention = fields.get("attention_bias", false)?;
            (shape.biases.qkv, shape.biases.output) = (attention, attention);
            shape.has_head_norms = true;
            qwen_windows(fields, shape)
        },
    },
    Family {
        name: "gemma",
        defaults: GEMMA,
        own: |fields, shape| {
            // What its first files called so is the approximation, and Hugging Face reads it so.
            if shape.gate == Gate::Gelu {
                shape.gate = Gate::GeluTanh;
            }
            gemma(fields, shape)
        },
    },
    Family {
        name: "gemma2",
        defaults: GEMMA2,
        own: |fields, shape| {
            gemma(fields, shape)?;
            shape.has_post_norms = true;
            shape.attention_scale = query_scale(fields)?;
            shape.score_cap = fields.nullable("attn_logit_softcapping", 50.0)?;
            shape.logit_cap = fields.nullable("final_logit_softcapping", 30.0)?;
            let window = fields.nullable("sliding_window", 4096)?;
            slide(fields, shape, window, |i| i.is_multiple_of(2))
        },
    },
    Family {
        name: "gemma3_text",
        defaults: Defaults {
            vocab_size: 262_208,
            max_position_embeddings: 131_072,
            rope_theta: 1_000_000.0,
            ..GEMMA2
        },
        own: gemma3,
    },
    Family {
        name: "phi3",
        defaults: Defaults {
            vocab_size: 32_064,
            hidden_size: 3072,
            intermediate_size: 8192,
            max_position_embeddings: 4096,
            rms_norm_eps: 1e-5,
            trained: Some(4096),
            is_partial: true,
            ..LLAMA
        },
        own: |fields, shape| {
            shape.is_fused = true;
            shape.dropout = shape.dropout.max(fields.get("resid_pdrop", 0.0)?);
            let window = fields.some("sliding_window")?;
            shape
                .layers
                .iter_mut()
                .for_each(|layer| layer.window = window);
            Ok(())
        },
    },
    Family {
        name: "smollm3",
        defaults: Defaults {
            vocab_size: 128_256,
            hidden_size: 2048,
            num_hidden_layers: 36,
            num_attention_heads: 16,
            num_key_value_heads: Some(4),
            max_position_embeddings: 32_768,
            rope_theta: 2_000_000.0,
            tie_word_embeddings: true,
            ..LLAMA
        },
        own: smollm3,
    },
];

/// All families' names, with GPT-2's, for messages.
fn names() -> String {
    let names = FAMILIES.iter().map(|family| format!("\"{}\"", family.name));
    let names: Vec<String> = std::iter::once("\"gpt2\"".to_owned())
        .chain(names)
        .collect();
    names.join(", ")
}

/// The family that a file names.
pub(super) fn family_of(fields: Fields<'_>) -> Result<&'static Family, ConfigError> {
    let name: String = fields.get("model_type", String::new())?;
    let found = FAMILIES.iter().find(|family| family.name == name);
    found.ok_or_else(|| ConfigError::Unsupported {
        field: "model_type".to_owned(),
        value: Value::from(name).to_string().chars().take(TOLD).collect(),
        expected: names(),
    })
}

impl Family {
    /// What a file of this family describes; not validated yet.
    pub(super) fn shape(&self, fields: Fields<'_>) -> Result<DecoderShape, ConfigError> {
        check_causal(fields)?;
        let or = &self.defaults;
        let hidden_size = fields.get("hidden_size", or.hidden_size)?;
        let heads = fields.get("num_attention_heads", or.num_attention_heads)?;
        let shared = match or.num_key_value_heads {
            Some(default) => fields.nullable("num_key_value_heads", default)?,
            None => fields.some("num_key_value_heads")?,
        };
        let head_dim = match or.head_dim {
            Some(default) => fields.get("head_dim", default)?,
            None => head_dim(fields, hidden_size, heads)?,
        };
        let max_position_embeddings =
            fields.get("max_position_embeddings", or.max_position_embeddings)?;
        let about = Positions {
            head_dim,
            max_length: max_position_embeddings,
            theta: or.rope_theta,
            trained: or.trained,
            is_partial: or.is_partial,
        };
        let rope = read_rope(fields.0, &about)?;
        let layers: usize = fields.get("num_hidden_layers", or.num_hidden_layers)?;
        let layer = DecoderLayer {
            window: None,
            rope: Some(0),
        };
        let mut shape = DecoderShape {
            vocab_size: fields.get("vocab_size", or.vocab_size)?,
            hidden_size,
            intermediate_size: fields.get("intermediate_size", or.intermediate_size)?,
            num_attention_heads: heads,
            num_key_value_heads: shared.unwrap_or(heads),
            head_dim,
            max_position_embeddings,
            initializer_range: fields.get("initializer_range", 0.02)?,
            rms_norm_eps: fields.get("rms_norm_eps", or.rms_norm_eps)?,
            tie_word_embeddings: fields.get("tie_word_embeddings", or.tie_word_embeddings)?,
            biases: Biases::default(),
            is_fused: false,
            has_head_norms: false,
            norms_add_one: false,
            has_post_norms: false,
            gate: gate(fields, or.gate)?,
            embedding_scale: None,
            attention_scale: (head_dim.max(1) as f64).powf(-0.5),
            score_cap: None,
            logit_cap: None,
            dropout: fields.get("attention_dropout", 0.0)?,
            ropes: vec![rope],
            // No more than may be: the number is checked afterwards.
            layers: vec![layer; layers.min(1 << 12)],
        };
        (self.own)(fields, &mut shape)?;
        Ok(shape)
    }
}

/// The gate's function; Gemma 2 and 3 have a field of their own for it.
fn gate(fields: Fields<'_>, (field, default): (&str, &str)) -> Result<Gate, ConfigError> {
    let name: String = fields.get(field, default.to_owned())?;
    match name.as_str() {
        "silu" | "swish" => Ok(Gate::Silu),
        "gelu" => Ok(Gate::Gelu),
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Ok(Gate::GeluTanh),
        _ => Err(ConfigError::Unsupported {
            field: field.to_owned(),
            value: Value::from(name).to_string().chars().take(TOLD).collect(),
            expected: "\"silu\", \"gelu\" or \"gelu_pytorch_tanh\"".to_owned(),
        }),
    }
}

/// Gives layers a window: those that `layer_types` names, or, without it, those of which `slides` says so.
fn slide(
    fields: Fields<'_>,
    shape: &mut DecoderShape,
    window: Option<usize>,
    slides: impl Fn(usize) -> bool,
) -> Result<(), ConfigError> {
    let types: Option<Vec<String>> = fields.some("layer_types")?;
    if let Some(types) = &types {
        let count = shape.layers.len();
        require(types.len() == count, "layer_types", &types.len(), || {
            format!("{count} entries, one for each of num_hidden_layers")
        })?;
    }
    for (i, layer) in shape.layers.iter_mut().enumerate() {
        let slides = match types.as_ref().map(|types| types[i].as_str()) {
            None => slides(i),
            Some("sliding_attention") => true,
            Some("full_attention") => false,
            Some(other) => {
                return Err(ConfigError::Unsupported {
                    field: "layer_types".to_owned(),
                    value: Value::from(other).to_string().chars().take(TOLD).collect(),
                    expected: "\"full_attention\" or \"sliding_attention\"".to_owned(),
                });
            }
        };
        layer.window = window.filter(|_| slides);
    }
    Ok(())
}

fn qwen_windows(fields: Fields<'_>, shape: &mut DecoderShape) -> Result<(), ConfigError> {
    let is_used = fields.get("use_sliding_window", false)?;
    let window = fields.nullable("sliding_window", 4096)?.filter(|_| is_used);
    let first = fields.get("max_window_layers", 28)?;
    slide(fields, shape, window, |i| i >= first)
}

/// That each token sees those up to itself: another mask makes another model.
fn check_causal(fields: Fields<'_>) -> Result<(), ConfigError> {
    for (field, expected) in [("is_causal", true), ("use_bidirectional_attention", false)] {
        let value = fields.get(field, expected)?;
        if value != expected {
            return Err(ConfigError::Unsupported {
                field: field.to_owned(),
                value: value.to_string(),
                expected: expected.to_string(),
            });
        }
    }
    Ok(())
}

/// What scores are multiplied by in Gemma 2 and 3.
fn query_scale(fields: Fields<'_>) -> Result<f64, ConfigError> {
    let scalar: f64 = fields.get("query_pre_attn_scalar", 256.0)?;
    Ok(scalar.powf(-0.5))
}

fn gemma(fields: Fields<'_>, shape: &mut DecoderShape) -> Result<(), ConfigError> {
    let attention = fields.get("attention_bias", false)?;
    (shape.biases.qkv, shape.biases.output) = (attention, attention);
    shape.norms_add_one = true;
    shape.embedding_scale = Some((shape.hidden_size as f64).sqrt());
    Ok(())
}

fn gemma3(fields: Fields<'_>, shape: &mut DecoderShape) -> Result<(), ConfigError> {
    gemma(fields, shape)?;
    (shape.has_post_norms, shape.has_head_norms) = (true, true);
    shape.attention_scale = query_scale(fields)?;
    if let Some(cap) = fields.some::<f64>("attn_logit_softcapping")? {
        return Err(ConfigError::Unsupported {
            field: "attn_logit_softcapping".to_owned(),
            value: cap.to_string(),
            expected: "null: transformers does not apply it to Gemma 3".to_owned(),
        });
    }
    shape.logit_cap = fields.some("final_logit_softcapping")?;
    let pattern = above_0(fields, "sliding_window_pattern", 6)?;
    let window = fields.nullable("sliding_window", 4096)?;
    slide(fields, shape, window, |i| !(i + 1).is_multiple_of(pattern))?;
    // Layers that slide rotate by a base of their own.
    let own = fields
        .0
        .get("rope_parameters")
        .and_then(|all| all.get("sliding_attention"));
    let own = own.cloned().unwrap_or_default();
    let own = Map::from_iter([("rope_parameters".to_owned(), own)]);
    let local = Positions {
        head_dim: shape.head_dim,
        max_length: shape.max_position_embeddings,
        theta: fields.get("rope_local_base_freq", 10_000.0)?,
        trained: None,
        is_partial: false,
    };
    let local = read_rope(&own, &local)?;
    shape.ropes.push(local);
    // Without a window a layer may still be one of those.
    let types: Option<Vec<String>> = fields.some("layer_types")?;
    for (i, layer) in shape.layers.iter_mut().enumerate() {
        let slides = match &types {
            Some(types) => types[i] == "sliding_attention",
            None => !(i + 1).is_multiple_of(pattern),
        };
        layer.rope = Some(usize::from(slides));
    }
    Ok(())
}

fn smollm3(fields: Fields<'_>, shape: &mut DecoderShape) -> Result<(), ConfigError> {
    let attention = fields.get("attention_bias", false)?;
    shape.biases = Biases {
        qkv: attention,
        output: attention,
        mlp: fields.get("mlp_bias", false)?,
    };
    let every = above_0(fields, "no_rope_layer_interval", 4)?;
    let rotated: Option<Vec<u8>> = fields.some("no_rope_layers")?;
    let count = shape.layers.len();
    if let Some(rotated) = &rotated {
        require(
            rotated.len() >= count,
            "no_rope_layers",
            &rotated.len(),
            || format!("{count} entries, one for each of num_hidden_layers"),
        )?;
    }
    let rotates = |i: usize| match &rotated {
        Some(rotated) => rotated[i] != 0,
        None => !(i + 1).is_multiple_of(every),
    };
    let is_used = fields.get("use_sliding_window", false)?;
    let window = fields.some("sliding_window")?.filter(|_| is_used);
    slide(fields, shape, window, |i| !rotates(i))?;
    for (i, layer) in shape.layers.iter_mut().enumerate() {
        layer.rope = rotates(i).then_some(0);
    }
    Ok(())
}
