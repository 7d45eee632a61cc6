//! Failures of a model's folder: its weights, its tokenizer, its configuration.

use highwater_models::weights::WeightsProblem;
use highwater_models::{ConfigError, TokenizerError, WeightsError};

use super::failure::{Code, Failure};

impl From<WeightsError> for Failure {
    fn from(error: WeightsError) -> Self {
        match error.problem {
            // These name the path themselves.
            WeightsProblem::Files(error) => error.into(),
            WeightsProblem::Saved(error) => error.into(),
            ref problem => {
                let hint = of_weights(problem);
                Self::new(Code::Files, error).id("HW1013").hint(hint)
            }
        }
    }
}

/// What to do about weights that are damaged.
pub(crate) const DAMAGED_WEIGHTS: &str =
    "fetch or copy the file again, or name the folder that it belongs to";

/// What to do about weights that are damaged, or not what `config.json` describes.
fn of_weights(problem: &WeightsProblem) -> &'static str {
    match problem {
        WeightsProblem::MissingSome { tensor, others: 0 } if tensor == "lm_head.weight" => {
            "if the head is the token embedding, say \"tie_word_embeddings\": true in config.json"
        }
        WeightsProblem::MissingSome { .. }
        | WeightsProblem::TooFewLayers { .. }
        | WeightsProblem::TooManyLayers { .. }
        | WeightsProblem::Undescribed { .. }
        | WeightsProblem::Shape { .. } => {
            "config.json and the weights are of two models, or one of them is cut short: fetch both again"
        }
        WeightsProblem::Untied => {
            "say \"tie_word_embeddings\": false in config.json, or leave the head out"
        }
        WeightsProblem::NotFloat { .. } => {
            "use the folder of the model that is not quantized, or convert it to floats in Python"
        }
        _ => DAMAGED_WEIGHTS,
    }
}

impl From<TokenizerError> for Failure {
    fn from(error: TokenizerError) -> Self {
        let not_utf8 = matches!(error, TokenizerError::NotUtf8 { .. });
        let failure = Self::new(Code::Files, error).id("HW1014");
        if not_utf8 {
            return failure.hint("text for a tokenizer.json must be UTF-8; convert it first");
        }
        failure
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Files(error) => error.into(),
            error @ ConfigError::UnknownPreset { .. } => Self::new(Code::Usage, error).id("HW1032"),
            error => {
                let hint = what_to_do(&error);
                Self::new(Code::Usage, error).id("HW1033").hint(hint)
            }
        }
    }
}

/// What to do about a model that is not possible here.
fn what_to_do(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::File { problem, .. } => what_to_do(problem),
        ConfigError::Unsupported { field, value, .. } => instead_of(field, value),
        ConfigError::Range { .. } => {
            "correct it if it is a mistake, or use a model within that limit"
        }
        _ => "fetch the model's config.json again, or correct it",
    }
}

/// What to take where a field of a configuration makes it a model that is not built here.
fn instead_of(field: &str, value: &str) -> &'static str {
    match field {
        "model_type" if value == "\"\"" => {
            "config.json does not say of which family the model is: fetch it again"
        }
        "model_type" => "use a model of one of these families",
        "quantization_config" => {
            "take the folder of the model that is not quantized; --lora with --quantize nf4 or int8 quantizes its weights"
        }
        "rope_type" | "rope_scaling" | "rope_parameters" | "partial_rotary_factor" => {
            "use a model with one of these, or without scaled positions"
        }
        "is_causal" | "use_bidirectional_attention" => {
            "take a model in which each token sees those before it alone: others are no language models that go on \
             with a text"
        }
        "hidden_act" | "hidden_activation" | "activation_function" => {
            "take a model with one of these functions: with another one it would be another model"
        }
        "layer_types" => "take a model whose layers see all tokens, or a window of them",
        _ => {
            "take a model of this family that has it so: with another value it would be another model"
        }
    }
}
