//! How long a run trains, and in which portions.

use serde::{Deserialize, Serialize};

use super::precision::Precision;
use super::preference::PreferenceConfig;

/// How often a run goes through its data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epochs {
    /// So often.
    pub count: f64,
    /// Whether it was said in how many steps the learning rate rises; a twentieth of them if not.
    pub warmup_is_said: bool,
}

/// How long and in which portions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Steps of the optimizer.
    pub steps: u64,
    /// How often the data was said to be gone through instead, until it is known how many steps that are.
    #[serde(skip)]
    pub epochs: Option<Epochs>,
    /// Sequences or images in a batch.
    pub batch: usize,
    /// Tokens in a sequence; 1 of images.
    pub seq: usize,
    /// Side of images, in pixels; none of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Batches of one step.
    pub accumulate: usize,
    /// In which precision products are computed.
    #[serde(default, skip_serializing_if = "Precision::is_whole")]
    pub precision: Precision,
    /// Seed of weights, dropout and order.
    pub seed: u64,
    /// The share of each target's probability that all tokens or classes have alike; none of pairs of answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f64>,
    /// How pairs of answers are learnt from; none of other data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceConfig>,
}
