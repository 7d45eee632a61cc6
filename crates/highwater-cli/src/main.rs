//! The `highwater` program.

use std::process::ExitCode;

use highwater_cli::commands::{Cli, misunderstood, run};

fn main() -> ExitCode {
    match Cli::read() {
        Ok(cli) => run(cli),
        Err(error) => misunderstood(&error),
    }
}
