//! What a run began with, as its settings keep it.

use highwater_memory::saved::Digest;
use serde::{Deserialize, Serialize};

/// What a run began with, by length and hash: kept in its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// `model.json`.
    pub model: Digest,
    /// The tokens of the data; of the file `tokens.bin`, where the run has one.
    pub data: Digest,
    /// The text or the records that these were made of, if they were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Digest>,
    /// The `tokenizer.json`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Digest>,
    /// The weights of the model's folder, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Digest>,
    /// The `config.json` beside those weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Digest>,
}
