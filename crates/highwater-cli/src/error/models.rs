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
pub(crate) const DAMAGED_WEIGHTS: &str = "download or copy the file again, or use the folder that it belongs to; `highwater resume RUN` restores the `final` folder of a run";

/// What to do about a `tokenizer.json` that cannot be read.
pub(crate) const OTHER_TOKENIZER: &str = "use the tokenizer.json that came with the model";

/// What to do about weights that are damaged, or not what `config.json` describes.
fn of_weights(problem: &WeightsProblem) -> &'static str {
    match problem {
        WeightsProblem::MissingSome { tensor, others: 0 } if tensor == "lm_head.weight" => {
            "if the head is the token embedding, set \"tie_word_embeddings\": true in config.json"
        }
        WeightsProblem::MissingSome { .. }
        | WeightsProblem::TooFewLayers { .. }
        | WeightsProblem::TooManyLayers { .. }
        | WeightsProblem::Undescribed { .. }
        | WeightsProblem::Shape { .. } => {
            "config.json and the weights belong to different models, or one of them is truncated: download both again"
        }
        WeightsProblem::Untied => {
            "set \"tie_word_embeddings\": false in config.json, or remove the head from the weights"
        }
        WeightsProblem::NotFloat { .. } => "use the unquantized model, or dequantize it in Python",
        _ => DAMAGED_WEIGHTS,
    }
}

impl From<TokenizerError> for Failure {
    fn from(error: TokenizerError) -> Self {
        let hint = match error {
            TokenizerError::NotUtf8 { .. } => {
                Some("text for a tokenizer.json must be UTF-8; convert it first")
            }
            TokenizerError::Draws { .. } => {
                Some("set \"dropout\" to null in a copy of the file: models are used without it")
            }
            TokenizerError::TooLarge { .. } | TokenizerError::Malformed { .. } => {
                Some(OTHER_TOKENIZER)
            }
            _ => None,
        };
        let failure = Self::new(Code::Files, error).id("HW1014");
        hint.into_iter().fold(failure, Self::hint)
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
        _ => "download the model's config.json again, or correct it",
    }
}

/// What to take where a field of a configuration makes it a model that is not built here.
fn instead_of(field: &str, value: &str) -> &'static str {
    match field {
        "model_type" if value == "\"\"" => {
            "config.json does not name the model's family: download it again"
        }
        "model_type" => {
            "use a model of one of these families; for images, a preset such as resnet18 or vit_b_16"
        }
        "quantization_config" => {
            "use the unquantized model; for QLoRA, --lora with --quantize nf4 or int8 quantizes its weights"
        }
        "rope_type" | "rope_scaling" | "rope_parameters" | "partial_rotary_factor" => {
            "use a model with a supported type, or without RoPE scaling"
        }
        "is_causal" | "use_bidirectional_attention" => "use a causal (decoder-only) language model",
        "hidden_act" | "hidden_activation" | "activation_function" => {
            "use a model with a supported activation function"
        }
        "layer_types" => "use a model whose layers have full or sliding-window attention",
        _ => "use a model of this family with a supported value",
    }
}
