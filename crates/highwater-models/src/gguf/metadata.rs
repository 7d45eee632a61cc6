//! What llama.cpp is told of a model, and which models it has.

use super::GgufError;
use super::container::Value;
use crate::Gpt2Config;
use crate::language::config::decoder::{Biases, DecoderShape, Gate};
use crate::language::rope::{Rope, RopeScaling};

/// Metadata by name, tensors that no folder has, and what is not as it was.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) metadata: Vec<(String, Value)>,
    /// Vectors of `F32`.
    pub(super) made: Vec<(&'static str, Vec<f32>)>,
    pub(super) notes: Vec<String>,
}

/// A family as llama.cpp has it.
#[derive(Debug)]
pub(super) struct Family {
    /// Its name there.
    pub(super) name: &'static str,
    /// Whether neighbours are rotated together.
    pub(super) interleave: bool,
    gate: Gate,
    biases: Biases,
    /// Of so many layers in a row the last sees everything, and those before it a window.
    window_every: Option<usize>,
}

/// The family of a `model_type`.
pub(super) fn family(model_type: &str) -> Option<Family> {
    let of = |name, interleave, gate| Family {
        name,
        interleave,
        gate,
        biases: Biases::default(),
        window_every: None,
    };
    let every = |window_every, family| Family {
        window_every: Some(window_every),
        ..family
    };
    let qkv = Biases {
        qkv: true,
        ..Biases::default()
    };
    Some(match model_type {
        "llama" | "mistral" => Family {
            biases: Biases {
                qkv: true,
                output: true,
                mlp: true,
            },
            ..of("llama", true, Gate::Silu)
        },
        "qwen2" => Family {
            biases: qkv,
            ..of("qwen2", false, Gate::Silu)
        },
        "qwen3" => of("qwen3", false, Gate::Silu),
        "gemma" => of("gemma", false, Gate::GeluTanh),
        "gemma2" => every(2, of("gemma2", false, Gate::GeluTanh)),
        "gemma3_text" => every(6, of("gemma3", false, Gate::GeluTanh)),
        "phi3" => of("phi3", false, Gate::Silu),
        "smollm3" => of("smollm3", true, Gate::Silu),
        _ => return None,
    })
}

impl Told {
    /// Adds a value under the name of the architecture.
    fn add(&mut self, architecture: &str, name: &str, value: Value) {
        self.metadata
            .push((format!("{architecture}.{name}"), value));
    }

    /// Of a decoder.
    pub(super) fn of_decoder(family: &Family, shape: &DecoderShape) -> Result<Self, GgufError> {
        check(family, shape)?;
        let mut told = Self::default();
        let name = family.name;
        for (key, value) in [
            ("vocab_size", shape.vocab_size),
            ("context_length", shape.max_position_embeddings),
            ("embedding_length", shape.hidden_size),
            ("block_count", shape.layers.len()),
            ("feed_forward_length", shape.intermediate_size),
            ("attention.head_count", shape.num_attention_heads),
            ("attention.head_count_kv", shape.num_key_value_heads),
            ("attention.key_length", shape.head_dim),
            ("attention.value_length", shape.head_dim),
        ] {
            told.add(name, key, Value::U32(value as u32));
        }
        let eps = shape.rms_norm_eps as f32;
        told.add(name, "attention.layer_norm_rms_epsilon", Value::F32(eps));
        for (key, cap) in [
            ("attn_logit_softcapping", shape.score_cap),
            ("final_logit_softcapping", shape.logit_cap),
        ] {
            if let Some(cap) = cap {
                told.add(name, key, Value::F32(cap as f32));
            }
        }
        told.windows(family, shape)?;
        let whole = shape.layers.iter().find(|layer| layer.window.is_none());
        let whole = whole.or(shape.layers.first());
        let rope = whole.and_then(|layer| layer.rope).or(Some(0));
        if let Some(rope) = rope.and_then(|rope| shape.ropes.get(rope)) {
            told.rope(family, rope)?;
        }
        Ok(told)
    }

    /// Of GPT-2.
    pub(super) fn of_gpt2(config: &Gpt2Config) -> Result<Self, GgufError> {
        if config.activation() != Some(crate::Activation::GeluTanh) {
            return Err(unsupported("another activation_function than \"gelu_new\""));
        }
        let mut told = Self::default();
        for (key, value) in [
            ("vocab_size", config.vocab_size),
            ("context_length", config.n_positions),
            ("embedding_length", config.n_embd),
            ("block_count", config.n_layer),
            ("feed_forward_length", config.inner()),
            ("attention.head_count", config.n_head),
        ] {
            told.add("gpt2", key, Value::U32(value as u32));
        }
        let eps = config.layer_norm_epsilon as f32;
        told.add("gpt2", "attention.layer_norm_epsilon", Value::F32(eps));
        Ok(told)
    }

    /// Windows: of the families that have them there, in the order that is theirs.
    fn windows(&mut self, family: &Family, shape: &DecoderShape) -> Result<(), GgufError> {
        let window = shape.layers.iter().find_map(|layer| layer.window);
        let Some(every) = family.window_every else {
            if let Some(window) = window {
                self.notes.push(format!(
                    "llama.cpp has no sliding windows for {}: beyond {window} tokens it answers otherwise",
                    family.name
                ));
            }
            return Ok(());
        };
        let Some(window) = window else {
            return Err(unsupported(
                "layers that all see everything (sliding_window)",
            ));
        };
        let mut layers = shape.layers.iter().enumerate();
        if layers.any(|(i, layer)| layer.window.is_some() == (i + 1).is_multiple_of(every)) {
            let what =
                format!("another order of windows than all but each {every}th layer (layer_types)");
            return Err(unsupported(&what));
        }
        self.add(
            family.name,
            "attention.sliding_window",
            Value::U32(window as u32),
        );
        let local = shape.layers.iter().find(|layer| layer.window.is_some());
        if let Some(local) = local.and_then(|layer| shape.ropes.get(layer.rope?)) {
            let base = Value::F32(local.theta as f32);
            self.add(family.name, "rope.freq_base_swa", base);
        }
        Ok(())
    }

    fn rope(&mut self, family: &Family, rope: &Rope) -> Result<(), GgufError> {
        let name = family.name;
        self.add(name, "rope.freq_base", Value::F32(rope.theta as f32));
        self.add(name, "rope.dimension_count", Value::U32(rope.width as u32));
        let scaled = |told: &mut Self, kind: &str, factor: f64| {
            told.add(name, "rope.scaling.type", Value::Text(kind.to_owned()));
            told.add(name, "rope.scaling.factor", Value::F32(factor as f32));
        };
        match &rope.scaling {
            RopeScaling::Default => {}
            RopeScaling::Linear { factor } => scaled(self, "linear", *factor),
            RopeScaling::Llama3 { .. } if name == "llama" => {
                // What each angle is divided by.
                let (angles, _) = rope.frequencies(rope.max_length);
                let first = Rope {
                    scaling: RopeScaling::Default,
                    ..rope.clone()
                };
                let (whole, _) = first.frequencies(rope.max_length);
                let factors = whole
                    .iter()
                    .zip(&angles)
                    .map(|(whole, angle)| whole / angle);
                self.made.push(("rope_freqs.weight", factors.collect()));
            }
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings: original,
                attention_factor: None,
                beta_fast: None,
                beta_slow: None,
                mscale: None,
                mscale_all_dim: None,
                truncate: None,
            } => {
                scaled(self, "yarn", *factor);
                let original = original.unwrap_or(rope.max_length) as u32;
                self.add(
                    name,
                    "rope.scaling.original_context_length",
                    Value::U32(original),
                );
            }
            RopeScaling::LongRope {
                short_factor,
                long_factor,
                original_max_position_embeddings: original,
                ..
            } if name == "phi3" => {
                let floats = |list: &[f64]| list.iter().map(|&x| x as f32).collect();
                self.made
                    .push(("rope_factors_long.weight", floats(long_factor)));
                self.made
                    .push(("rope_factors_short.weight", floats(short_factor)));
                let original = original.unwrap_or(rope.max_length);
                let (_, factor) = rope.frequencies(original + 1);
                self.add(
                    name,
                    "rope.scaling.original_context_length",
                    Value::U32(original as u32),
                );
                self.add(name, "rope.scaling.attn_factor", Value::F32(factor as f32));
            }
            _ => return Err(unsupported("these rope_scaling settings")),
        }
        Ok(())
    }
}

/// That llama.cpp computes what the model does.
fn check(family: &Family, shape: &DecoderShape) -> Result<(), GgufError> {
    let has = |mine: bool, allowed: bool| !mine || allowed;
    let (mine, allowed) = (shape.biases, family.biases);
    if !(has(mine.qkv, allowed.qkv)
        && has(mine.output, allowed.output)
        && has(mine.mlp, allowed.mlp))
    {
        return Err(unsupported("biases (attention_bias, mlp_bias)"));
    }
    if shape.gate != family.gate {
        return Err(unsupported(
            "another activation than the family's (hidden_act)",
        ));
    }
    // Those of 27 billion numbers divide by the width of the stream over the heads.
    let stream = shape.hidden_size as f64 / shape.num_attention_heads as f64;
    let is_large = matches!(
        (family.name, shape.layers.len()),
        ("gemma2", 46) | ("gemma3", 62)
    );
    let scale = if is_large {
        stream
    } else {
        shape.head_dim as f64
    }
    .powf(-0.5);
    if (shape.attention_scale / scale - 1.0).abs() > 1e-6 {
        return Err(unsupported(
            "another query_pre_attn_scalar than the width of a head",
        ));
    }
    let caps = [shape.score_cap.is_some(), shape.logit_cap.is_some()];
    if caps != [family.name == "gemma2"; 2] {
        return Err(unsupported(
            "this attn_logit_softcapping or final_logit_softcapping",
        ));
    }
    if family.name.starts_with("gemma") && !shape.tie_word_embeddings {
        return Err(unsupported("a head of its own (tie_word_embeddings)"));
    }
    if shape.is_fused && shape.num_attention_heads * shape.head_dim != shape.hidden_size {
        return Err(unsupported(
            "another head_dim than hidden_size over num_attention_heads",
        ));
    }
    let rotated = |i: usize| family.name != "smollm3" || !(i + 1).is_multiple_of(4);
    let mut layers = shape.layers.iter().enumerate();
    if layers.any(|(i, layer)| layer.rope.is_some() != rotated(i)) {
        return Err(unsupported(
            "these layers without positions (no_rope_layers)",
        ));
    }
    Ok(())
}

pub(super) fn unsupported(what: &str) -> GgufError {
    GgufError::Unsupported {
        what: what.to_owned(),
    }
}
