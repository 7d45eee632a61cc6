//! The flags of `train`.

use std::path::PathBuf;

use clap::Args;

use super::output::OutputArgs;
use super::run::RunArgs;

/// `train`.
#[derive(Args, Clone, Debug, Default)]
#[command(allow_negative_numbers = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct TrainArgs {
    /// What decides about the computation.
    #[command(flatten)]
    pub run: RunArgs,

    /// Folder for the run [default: runs/ and the model's name, numbered if in use]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,

    /// What is kept.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Print the resolved settings and the plan, and do nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,

    /// At the end, print what each operation took, beside what this machine does at most
    #[arg(long, help_heading = "Output")]
    pub profile: bool,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Replace the run that is in the folder
    #[arg(long, help_heading = "Output")]
    pub force: bool,
}
