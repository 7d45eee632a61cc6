//! What a run keeps and shows: how often it saves its state, how many of those are kept, when it looks at what it has
//! learnt, and in how large files its model is at the end.

use clap::Args;
use highwater::Bytes;
use highwater_models::SHARD_BYTES;
use serde::{Deserialize, Serialize};

/// Flags of what is kept. Not a doc comment for people: clap shows the fields'.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct OutputArgs {
    /// Save the state every so many steps [default: 100]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub save_every: Option<u64>,

    /// Keep so many saved states [default: 3]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub keep: Option<usize>,

    /// Measure the loss on what is held out every so many steps, too, and keep the state that did best
    /// [default: of records that are read several times after each time, otherwise before and after]
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub eval_every: Option<u64>,

    /// Show how the model goes on from this text, or answers it where it learns conversations, whenever the loss on
    /// what is held out is measured; several times for several
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    pub sample: Option<Vec<String>>,

    /// Bytes of weights in each file of the model that the run ends with, at most [default: 50GB]
    #[arg(long, value_name = "SIZE", help_heading = "Output")]
    pub max_shard_size: Option<Bytes>,

    /// Write what steps come to for TensorBoard as well, in the folder tensorboard of the run: a file for each start
    #[arg(
        long,
        num_args = 0,
        default_missing_value = "true",
        help_heading = "Output"
    )]
    pub tensorboard: Option<bool>,
}

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

impl OutputConfig {
    /// As it is, but for what flags say.
    pub(crate) fn apply(&mut self, args: &OutputArgs) {
        self.save_every = args.save_every.unwrap_or(self.save_every);
        self.keep = args.keep.unwrap_or(self.keep);
        self.eval_every = args.eval_every.or(self.eval_every);
        if let Some(sample) = &args.sample {
            self.sample.clone_from(sample);
        }
        self.max_shard_size = args.max_shard_size.or(self.max_shard_size);
        self.tensorboard = args.tensorboard.unwrap_or(self.tensorboard);
    }
}
