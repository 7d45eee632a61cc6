//! The `highwater` program.

use std::process::ExitCode;

use clap::Parser;
use highwater_cli::args::Cli;

fn main() -> ExitCode {
    highwater_cli::run(&Cli::parse().command)
}
