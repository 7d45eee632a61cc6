//! The `highwater` program: trains language models inside a memory budget.

pub mod args;
pub mod config;
pub mod data;
pub mod doctor;
pub mod error;
pub mod metrics;
pub mod output;
pub mod progress;
pub mod resolve;
pub mod run_dir;
pub mod schedule;
pub mod signals;
pub mod train;

use std::process::ExitCode;

use args::Command;
use error::{Code, Failure};

/// Does what the command line says, tells what went wrong, and says with which code to exit.
pub fn run(command: &Command) -> ExitCode {
    let done = match command {
        Command::Train(args) => train::train(args),
        Command::Doctor(args) => doctor::doctor(args).map(|()| ExitCode::SUCCESS),
        Command::Plan(_) | Command::Resume(_) | Command::Generate(_) => Err(not_built()),
    };
    done.unwrap_or_else(|failure| {
        output::news(&failure.to_string());
        ExitCode::from(failure.code())
    })
}

fn not_built() -> Failure {
    Failure::new(Code::Internal, "this is not built yet")
}
