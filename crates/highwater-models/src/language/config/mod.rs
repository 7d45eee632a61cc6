//! Configurations: Hugging Face's `config.json`, presets, and what follows from it. GPT-2's is here.

pub mod decoder;
mod families;
mod fields;
pub(crate) mod limits;
mod shape;

pub use decoder::{DecoderConfig, DecoderShape};
pub use limits::{HEAD_WIDTH_MAX, PARAMETERS_MAX};

use std::path::{Path, PathBuf};

use highwater_memory::{Files, FilesError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::json;

/// The largest `config.json` that is read, in bytes.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// How much is told of a value that is not what it should be, in characters.
pub(crate) const TOLD: usize = 60;

/// The built-in configurations, of each family the smallest first.
pub const PRESETS: [&str; 7] = [
    "gpt2-nano",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "llama-nano",
    "llama-1b",
];

/// What can be wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// What is wrong with a file.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: Box<ConfigError>,
    },
    /// A file too large for a configuration.
    #[error("{bytes} bytes; a configuration has at most {CONFIG_BYTES_MAX}")]
    TooLarge {
        /// Its length.
        bytes: u64,
    },
    /// Not a JSON object.
    #[error("not a JSON object: {problem}")]
    Json {
        /// What the parser says, with line and column.
        problem: String,
    },
    /// A field of the wrong type.
    #[error("`{field}`: {problem}")]
    Field {
        /// The field's name.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A number outside its range.
    #[error("`{field}` is {value}; expected {expected}")]
    Range {
        /// The field's name.
        field: &'static str,
        /// What was given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// A switch that would make it another model than the one built here.
    #[error("`{field}` is {value}; supported: {expected}")]
    Unsupported {
        /// The field's name.
        field: String,
        /// What was given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// No preset has that name.
    #[error("there is no preset `{name}`{}", suggestion(.nearest.as_deref()))]
    UnknownPreset {
        /// What was asked for.
        name: String,
        /// The preset that is spelt most like it, if one is near.
        nearest: Option<String>,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("; did you mean `{name}`?"),
        None => format!("; there are {}", PRESETS.join(", ")),
    }
}

/// The function between the two halves of a block's MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// GELU by its tanh approximation, GPT-2's own.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
    /// The positive part.
    Relu,
}

/// Hugging Face's `GPT2Config`, field for field. Fields unknown here are kept and written back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpt2Config {
    /// The classes whose weights these are: `GPT2LMHeadModel`.
    pub architectures: Vec<String>,
    /// The family: `gpt2`.
    pub model_type: String,
    /// Number of tokens.
    pub vocab_size: usize,
    /// The longest sequence.
    pub n_positions: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Number of blocks.
    pub n_layer: usize,
    /// Attention heads in a block; `n_embd` is a multiple of it.
    pub n_head: usize,
    /// Width between the halves of the MLP; 4 x `n_embd` when null.
    pub n_inner: Option<usize>,
    /// Hugging Face's name for the activation; [`Gpt2Config::activation`] reads it.
    pub activation_function: String,
    /// Dropout of what is added to the residual stream.
    pub resid_pdrop: f64,
    /// Dropout of the embeddings.
    pub embd_pdrop: f64,
    /// Dropout of the attention weights.
    pub attn_pdrop: f64,
    /// What layer norm adds to the variance.
    pub layer_norm_epsilon: f64,
    /// Standard deviation of the weights at the start.
    pub initializer_range: f64,
    /// Whether the logits are made with the token embedding.
    pub tie_word_embeddings: bool,
    /// The token that begins a text.
    pub bos_token_id: Option<u64>,
    /// The token that ends a text.
    pub eos_token_id: Option<u64>,
    /// Element type of the stored weights; newer files call it `dtype`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_dtype: Option<String>,
    /// Everything else that the file had.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for Gpt2Config {
    /// GPT-2 of 124 million parameters, without dropout.
    fn default() -> Self {
        Self {
            architectures: vec!["GPT2LMHeadModel".to_owned()],
            model_type: "gpt2".to_owned(),
            vocab_size: 50_257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: "gelu_new".to_owned(),
            resid_pdrop: 0.0,
            embd_pdrop: 0.0,
            attn_pdrop: 0.0,
            layer_norm_epsilon: 1e-5,
            initializer_range: 0.02,
            tie_word_embeddings: true,
            bos_token_id: Some(50_256),
            eos_token_id: Some(50_256),
            torch_dtype: Some("float32".to_owned()),
            other: Map::new(),
        }
    }
}

impl Gpt2Config {
    /// A built-in configuration by its name, one of [`PRESETS`] that begin with `gpt2`.
    ///
    /// # Errors
    /// [`ConfigError::UnknownPreset`], with the name most like it.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        let sized = |n_layer, n_embd, n_head| Self {
            n_embd,
            n_layer,
            n_head,
            ..Self::default()
        };
        match name {
            "gpt2" => Ok(Self::default()),
            "gpt2-medium" => Ok(sized(24, 1024, 16)),
            "gpt2-large" => Ok(sized(36, 1280, 20)),
            "gpt2-xl" => Ok(sized(48, 1600, 25)),
            "gpt2-nano" => Ok(Self {
                vocab_size: 256,
                n_positions: 256,
                n_embd: 128,
                n_layer: 5,
                n_head: 4,
                // Rows of width 128 need larger weights than those of 768, or nothing is learned for long.
                initializer_range: 0.06,
                bos_token_id: Some(0),
                eos_token_id: Some(0),
                ..Self::default()
            }),
            _ => Err(ConfigError::UnknownPreset {
                name: name.chars().take(60).collect(),
                nearest: nearest(name, &PRESETS).map(str::to_owned),
            }),
        }
    }

    /// Reads the `config.json` at `path` as [`Gpt2Config::from_json`] does.
    ///
    /// # Errors
    /// [`ConfigError`], naming the file and the field.
    pub fn read(files: &dyn Files, path: &Path) -> Result<Self, ConfigError> {
        read(files, path, Self::from_json)
    }

    /// Parses a `config.json` and validates it. A missing field takes Hugging Face's default.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        let mut fields = json::object(text).map_err(|problem| ConfigError::Json { problem })?;
        let default = Self::default();
        let fields = &mut fields;
        let newer_dtype = take(fields, "dtype", None)?;
        let config = Self {
            architectures: take(fields, "architectures", default.architectures)?,
            // No default: a folder of another family must never be taken for GPT-2.
            model_type: take(fields, "model_type", String::new())?,
            vocab_size: take(fields, "vocab_size", default.vocab_size)?,
            n_positions: take(fields, "n_positions", default.n_positions)?,
            n_embd: take(fields, "n_embd", default.n_embd)?,
            n_layer: take(fields, "n_layer", default.n_layer)?,
            n_head: take(fields, "n_head", default.n_head)?,
            n_inner: take(fields, "n_inner", None)?,
            activation_function: take(fields, "activation_function", default.activation_function)?,
            resid_pdrop: take(fields, "resid_pdrop", 0.1)?,
            embd_pdrop: take(fields, "embd_pdrop", 0.1)?,
            attn_pdrop: take(fields, "attn_pdrop", 0.1)?,
            layer_norm_epsilon: take(fields, "layer_norm_epsilon", default.layer_norm_epsilon)?,
            initializer_range: take(fields, "initializer_range", default.initializer_range)?,
            tie_word_embeddings: take(fields, "tie_word_embeddings", true)?,
            bos_token_id: take(fields, "bos_token_id", None)?,
            eos_token_id: take(fields, "eos_token_id", None)?,
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

    /// The activation of the MLP; none for a name that is not known here.
    pub fn activation(&self) -> Option<Activation> {
        match self.activation_function.as_str() {
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Some(Activation::GeluTanh),
            "gelu" => Some(Activation::Gelu),
            "relu" => Some(Activation::Relu),
            _ => None,
        }
    }

    /// Width between the halves of the MLP.
    pub fn inner(&self) -> usize {
        self.n_inner.unwrap_or(self.n_embd.saturating_mul(4))
    }

    /// Width of one attention head.
    pub fn head_width(&self) -> usize {
        self.n_embd / self.n_head.max(1)
    }

    /// Sets the three dropouts to one probability.
    #[must_use]
    pub fn with_dropout(self, probability: f64) -> Self {
        Self {
            resid_pdrop: probability,
            embd_pdrop: probability,
            attn_pdrop: probability,
            ..self
        }
    }
}

/// Reads the `config.json` at `path` as `parse` does, and has errors name the file.
pub(crate) fn read<T>(
    files: &dyn Files,
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let mut file = files.open(path)?;
    let bytes = file.bytes();
    let parsed = if bytes > CONFIG_BYTES_MAX {
        Err(ConfigError::TooLarge { bytes })
    } else {
        let mut text = vec![0; bytes as usize];
        file.read_exact_at(0, &mut text)?;
        match std::str::from_utf8(&text) {
            Ok(text) => parse(text),
            Err(error) => Err(ConfigError::Json {
                problem: json::not_utf8(&error),
            }),
        }
    };
    parsed.map_err(|problem| ConfigError::File {
        path: path.to_owned(),
        problem: Box::new(problem),
    })
}

/// The family that a `config.json` names, if it names one.
pub(crate) fn family(text: &str) -> Option<String> {
    let fields: Map<String, Value> = serde_json::from_str(text).ok()?;
    Some(fields.get("model_type")?.as_str()?.to_owned())
}

/// Takes a field out of `fields`; `default` where it is absent or null.
pub(crate) fn take<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    field: &str,
    default: T,
) -> Result<T, ConfigError> {
    // Order of the fields that stay matters to nobody, but is kept all the same.
    match fields.shift_remove(field) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => read_field(field, value),
    }
}

/// A field's value as a type.
pub(crate) fn read_field<T: DeserializeOwned>(field: &str, value: Value) -> Result<T, ConfigError> {
    serde_json::from_value(value).map_err(|e| ConfigError::Field {
        field: field.to_owned(),
        problem: in_words(&e.to_string()),
    })
}

/// What a parser says of a value, shortly and without names of Rust's types.
pub fn in_words(problem: &str) -> String {
    let (got, expected) = problem.rsplit_once(", expected ").unwrap_or((problem, ""));
    let expected = match expected {
        "usize" | "u64" | "u32" => "a non-negative integer",
        "f64" => "a number",
        other => other,
    };
    let mut words: String = got.chars().take(TOLD).collect();
    if words.len() < got.len() {
        words.push_str("...");
    }
    if !expected.is_empty() {
        words = format!("{words}; expected {expected}");
    }
    words
}

/// The name that is spelt most like `text`, if one is near enough to have been meant.
pub fn nearest<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let likeness = |name: &str| strsim::jaro_winkler(text, name);
    let best = names
        .iter()
        .copied()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= 0.7).then_some(best)
}

#[cfg(test)]
mod tests;
