//! Flags of what a run keeps and shows.

use clap::Args;
use highwater::Bytes;

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
