//! The `highwater` program: trains language models inside a memory budget.

pub mod args;
pub mod config;
pub mod data;
pub mod doctor;
pub mod dry;
pub mod error;
pub mod generate;
pub mod log;
pub mod machine;
pub mod metrics;
pub mod output;
pub mod pace;
pub mod phases;
pub mod plan;
pub mod progress;
pub mod report;
pub mod resolve;
pub mod run_dir;
pub mod schedule;
pub mod session;
pub mod signals;
pub mod state;
pub mod train;
pub mod training;

use std::process::ExitCode;

use args::Command;

/// Does what the command line says, tells what went wrong, and says with which code to exit.
pub fn run(command: &Command) -> ExitCode {
    signals::survive_file_limits();
    let done = match command {
        Command::Train(args) => train::train(args),
        Command::Doctor(args) => doctor::doctor(args).map(|()| ExitCode::SUCCESS),
        Command::Plan(args) => plan::plan(args),
        Command::Resume(args) => train::resume(args),
        Command::Measure(args) => machine::measure(args).map(|()| ExitCode::SUCCESS),
        Command::Generate(args) => generate::generate(args),
    };
    done.unwrap_or_else(|failure| {
        output::news(&failure.to_string());
        ExitCode::from(failure.code())
    })
}
