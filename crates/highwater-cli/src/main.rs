//! The `highwater` program.

use std::process::ExitCode;

use clap::Parser;
use highwater_cli::commands::{Cli, misunderstood, run};

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) => misunderstood(&error),
    }
}
