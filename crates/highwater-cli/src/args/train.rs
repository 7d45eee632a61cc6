//! The flags of `train`.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::flags::All;
use super::run::RunArgs;

/// `train`.
#[derive(Args, Clone, Debug, Default)]
#[command(allow_negative_numbers = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct TrainArgs {
    /// The settings.
    #[command(flatten)]
    pub run: RunArgs<All>,

    /// Folder of the run [default: runs/ and the model's name, with a number if it exists]
    #[arg(long, value_name = "DIR", help_heading = "Output", display_order = 0)]
    pub out: Option<PathBuf>,

    /// Print the resolved settings and the plan, and exit
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,

    /// At the end, print the time of each operation and this machine's limits
    #[arg(long, help_heading = "Output")]
    #[arg(hide_short_help = true, hide_long_help = true)]
    pub profile: bool,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    #[arg(hide_short_help = true, hide_long_help = true)]
    pub json: bool,

    /// Replace the run in the folder
    #[arg(long, help_heading = "Output")]
    #[arg(hide_short_help = true, hide_long_help = true)]
    pub force: bool,

    /// Print help with all flags
    #[arg(long, action = ArgAction::HelpLong)]
    pub help_all: Option<bool>,
}
