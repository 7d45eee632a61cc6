//! The settings of a new run, or of one that is planned, as a command line gives them.

use std::path::PathBuf;

use clap::Args;

use super::assignment::Assignment;
use super::flags::{Flags, Subset};

// Not a doc comment: clap would print it as the command's description.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "see above")]
pub struct RunArgs<S: Subset> {
    /// A config.toml with settings, such as that of a run. Flags override it
    #[arg(long, value_name = "FILE", help_heading = "Model and data")]
    pub config: Option<PathBuf>,

    /// Set a setting by its place in config.toml, such as optimizer.lr=3e-4. May be repeated
    #[arg(long, value_name = "SETTING=VALUE", help_heading = "Model and data")]
    #[arg(
        allow_hyphen_values = true,
        hide_short_help = true,
        hide_long_help = true
    )]
    pub set: Vec<Assignment>,

    #[command(flatten)]
    pub flags: Flags<S>,
}
