//! What the file `generation_config.json` beside a model says of sampling.

use std::path::Path;

use highwater_memory::Files;
use highwater_models::config::in_words;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::Failure;

/// What the file `generation_config.json` beside a model says of drawing, as transformers writes it.
#[derive(Clone, Debug, Default)]
pub struct GenerationConfig {
    pub do_sample: Option<bool>,
    pub temperature: Option<f64>,
    pub top_k: Option<u32>,
    pub top_p: Option<f64>,
    pub min_p: Option<f64>,
    pub repetition_penalty: Option<f64>,
    /// Texts to end before.
    pub stop: Vec<String>,
    /// What else it has that would change what is drawn, and does not here.
    pub unread: Vec<&'static str>,
}

/// Fields that change what transformers draws, with the values that leave it as it is.
const OTHERS: [(&str, &[f64]); 26] = [
    ("bad_words_ids", &[]),
    ("begin_suppress_tokens", &[]),
    ("constraints", &[]),
    ("diversity_penalty", &[0.0]),
    ("dola_layers", &[]),
    ("encoder_no_repeat_ngram_size", &[0.0]),
    ("encoder_repetition_penalty", &[1.0]),
    ("epsilon_cutoff", &[0.0]),
    ("eta_cutoff", &[0.0]),
    ("exponential_decay_length_penalty", &[]),
    ("force_words_ids", &[]),
    ("forced_bos_token_id", &[]),
    ("forced_eos_token_id", &[]),
    ("guidance_scale", &[1.0]),
    ("max_new_tokens", &[]),
    ("min_length", &[0.0]),
    ("min_new_tokens", &[0.0]),
    ("no_repeat_ngram_size", &[0.0]),
    ("num_beams", &[1.0]),
    ("penalty_alpha", &[0.0]),
    ("sequence_bias", &[]),
    ("suppress_tokens", &[]),
    ("token_healing", &[0.0]),
    ("top_h", &[]),
    ("typical_p", &[1.0]),
    ("watermarking_config", &[]),
];

impl GenerationConfig {
    /// Reads it from a model's folder; nothing is stated without it.
    ///
    /// # Errors
    /// [`Failure`] for a file that is not what transformers writes.
    pub fn read(files: &dyn Files, folder: &Path) -> Result<Self, Failure> {
        let path = folder.join("generation_config.json");
        if files.metadata(&path)?.is_none() {
            return Ok(Self::default());
        }
        let text = highwater_text::read_text(files, &path)?;
        let told = |problem: String| {
            let failure = Failure::usage(format!("{}: {problem}", path.display())).id("HW1033");
            failure.hint("correct it, or move it away and use the flags for sampling")
        };
        let fields: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| told(error.to_string()))?;
        let mut stated = Self {
            do_sample: field(&fields, "do_sample").map_err(told)?,
            temperature: field(&fields, "temperature").map_err(told)?,
            top_k: field(&fields, "top_k").map_err(told)?,
            top_p: field(&fields, "top_p").map_err(told)?,
            min_p: field(&fields, "min_p").map_err(told)?,
            repetition_penalty: field(&fields, "repetition_penalty").map_err(told)?,
            stop: stop_strings(&fields).map_err(told)?,
            unread: unread(&fields),
        };
        match stated.do_sample {
            Some(false) => stated.temperature = Some(0.0),
            // What transformers takes where the file has none.
            Some(true) => {
                stated.temperature.get_or_insert(1.0);
                stated.top_k.get_or_insert(50);
            }
            None => {}
        }
        Ok(stated)
    }
}

/// Texts to end before: one, or a list.
fn stop_strings(fields: &Map<String, Value>) -> Result<Vec<String>, String> {
    let name = "stop_strings";
    let mut texts = match fields.get(name) {
        Some(Value::String(text)) => vec![text.clone()],
        _ => field(fields, name)?.unwrap_or_default(),
    };
    texts.retain(|text: &String| !text.is_empty());
    Ok(texts)
}

/// Which of the other fields say something.
fn unread(fields: &Map<String, Value>) -> Vec<&'static str> {
    let says = |name: &str, neutral: &[f64]| match fields.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Bool(is_on)) => *is_on,
        Some(value) => value.as_f64().is_none_or(|value| !neutral.contains(&value)),
    };
    let others = OTHERS.iter();
    others
        .filter(|(name, neutral)| says(name, neutral))
        .map(|other| other.0)
        .collect()
}

/// A field, if it is there and not null.
fn field<T: DeserializeOwned>(
    fields: &Map<String, Value>,
    name: &str,
) -> Result<Option<T>, String> {
    let found = fields.get(name).filter(|value| !value.is_null());
    let read = |value: &Value| serde_json::from_value(value.clone());
    let read = found.map(read).transpose();
    read.map_err(|error| format!("`{name}`: {}", in_words(&error.to_string())))
}
