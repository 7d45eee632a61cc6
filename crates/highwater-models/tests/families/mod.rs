//! Small models of each kind of attention and of positions.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use highwater::{DType, Result, philox};
use highwater_models::{Architecture, CausalLm, DecoderConfig, Gpt2Config};
use serde_json::{Value, json};

pub(crate) const VOCABULARY: usize = 61;
/// All that there are here. In tests of rows, documents are short sequences of `phi3-long`, and rows long ones.
pub(crate) const FAMILIES: [&str; 10] = [
    "gpt2",
    "llama",
    "llama3",
    "mistral",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "phi3",
    "phi3-long",
    "smollm3",
];
pub(crate) const WINDOW: usize = 9;

/// What a family adds to the fields that all have.
fn fields(family: &str) -> Value {
    match family {
        "gpt2" => {
            json!({"n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
            "attn_pdrop": 0.0})
        }
        "llama3" => {
            json!({"model_type": "llama", "rope_parameters": {"rope_type": "llama3", "factor": 8.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
            "rope_theta": 500.0}})
        }
        "mistral" => json!({"sliding_window": WINDOW}),
        "qwen3" => json!({"head_dim": 16}),
        "gemma2" => json!({"head_dim": 16, "sliding_window": WINDOW, "query_pre_attn_scalar": 20,
            "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "tie_word_embeddings": true}),
        "gemma3_text" => {
            json!({"head_dim": 16, "sliding_window": WINDOW, "query_pre_attn_scalar": 20,
            "tie_word_embeddings": true, "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}})
        }
        "phi3" => json!({"sliding_window": WINDOW, "pad_token_id": null}),
        "phi3-long" => {
            json!({"model_type": "phi3", "pad_token_id": null, "original_max_position_embeddings": 64,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [1.0, 2.0, 4.0, 8.0]}})
        }
        "smollm3" => json!({"no_rope_layers": [1, 0], "pad_token_id": null}),
        _ => json!({}),
    }
}

/// One of sequences of up to so many tokens, with fields of a test's own.
pub(crate) fn architecture(family: &str, longest: usize, own: &Value) -> Box<dyn Architecture> {
    let mut all = json!({"model_type": family, "vocab_size": VOCABULARY, "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": longest, "n_positions": longest, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": family == "gpt2"});
    for (name, value) in [fields(family), own.clone()]
        .iter()
        .filter_map(Value::as_object)
        .flatten()
    {
        all[name] = value.clone();
    }
    let text = all.to_string();
    match family {
        "gpt2" => Box::new(Gpt2Config::from_json(&text).unwrap()),
        _ => Box::new(DecoderConfig::from_json(&text).unwrap()),
    }
}

/// Adds random numbers to all that trains, biases and norms too: large enough that attention looks somewhere.
pub(crate) fn stir(model: &dyn CausalLm) -> Result<()> {
    if model.engine().is_dry_run() {
        return Ok(());
    }
    for (i, parameter) in model.parameters().into_iter().enumerate() {
        if !parameter.dtype().is_float() {
            continue;
        }
        let mut values: Vec<f32> = parameter.to_dtype(DType::F32)?.to_vec()?;
        let mut noise = vec![0.0; values.len()];
        philox::fill_normal(7, (i as u64) << 32, &mut noise);
        for (value, noise) in values.iter_mut().zip(noise) {
            *value += 0.2 * noise;
        }
        parameter.copy_from_slice(&values)?;
    }
    Ok(())
}
