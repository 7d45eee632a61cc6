//! The `highwater` program.

use std::process::ExitCode;

use clap::Parser;
use highwater_cli::args::Cli;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => highwater_cli::run(cli),
        Err(error) => highwater_cli::misunderstood(&error),
    }
}
