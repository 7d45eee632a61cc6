//! What a run keeps and shows.

use highwater::Bytes;
use highwater_models::SHARD_BYTES;
use serde::{Deserialize, Serialize};

/// What is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputConfig {
    /// Steps between saved states.
    pub save_every: u64,
    /// How many of them are kept.
    pub keep: usize,
    /// Steps between measurements of the loss on what is held out; before and after alone if none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_every: Option<u64>,
    /// What the model is shown to go on from then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sample: Vec<String>,
    /// Bytes of weights in each file of the model that the run ends with, at most; [`SHARD_BYTES`] if none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_shard_size: Option<Bytes>,
    /// Whether steps are told to TensorBoard too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tensorboard: bool,
}

impl Default for OutputConfig {
    fn default() -> Self {
        Self {
            save_every: 100,
            keep: 3,
            eval_every: None,
            sample: Vec::new(),
            max_shard_size: None,
            tensorboard: false,
        }
    }
}

impl OutputConfig {
    /// Bytes of weights in each file, at most.
    #[must_use]
    pub fn shard_bytes(&self) -> u64 {
        self.max_shard_size.map_or(SHARD_BYTES, |most| most.0)
    }
}
