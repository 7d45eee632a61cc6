//! The flags of `resume`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args};

use super::flags::{Changes, Flags};

/// `resume`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct ResumeArgs {
    /// Folder of the run
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// New values of settings.
    #[command(flatten)]
    pub changes: Flags<Changes>,

    /// Stop using --device-memory and --host-memory
    #[arg(long, help_heading = "Memory and machine")]
    #[arg(conflicts_with_all = ["device_memory", "host_memory"])]
    #[arg(hide_short_help = true, hide_long_help = true)]
    pub no_host_memory: bool,

    /// Stop offloading to disk
    #[arg(long, help_heading = "Memory and machine", conflicts_with = "disk")]
    pub no_disk: bool,

    /// Where the model's folder is now
    #[arg(long, value_name = "FOLDER", help_heading = "Model and data")]
    pub model: Option<PathBuf>,

    /// Where the data is now
    #[arg(long, value_name = "PATH", help_heading = "Model and data")]
    pub data: Option<PathBuf>,

    /// Where the tokenizer.json is now [default: in the model's folder, if it was there]
    #[arg(long, value_name = "FILE", help_heading = "Model and data")]
    pub tokenizer: Option<PathBuf>,

    /// Accept that the data, the tokenizer or the model's folder has changed since the run began: ok
    #[arg(long, value_name = "OK", value_parser = PossibleValuesParser::new(["ok"]))]
    #[arg(help_heading = "Model and data")]
    pub data_changed: Option<String>,

    /// At the end, print the time of each operation and this machine's limits
    #[arg(long, help_heading = "Output")]
    #[arg(hide_short_help = true, hide_long_help = true)]
    pub profile: bool,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    #[arg(hide_short_help = true, hide_long_help = true)]
    pub json: bool,

    /// Print help with all flags
    #[arg(long, action = ArgAction::HelpLong)]
    pub help_all: Option<bool>,
}
