//! The `highwater` program: trains models of text and of pictures inside a memory budget.

pub mod args;
pub mod base;
pub mod best;
pub mod chat;
pub mod config;
pub mod data;
pub mod data_show;
pub mod doctor;
pub mod dry;
mod engine_error;
pub mod error;
pub mod eval;
pub mod export;
pub mod final_model;
mod from_config;
pub mod generate;
mod held_out;
pub mod hub;
pub mod init;
mod loaded;
pub mod log;
pub mod lora;
pub mod machine;
pub mod merging;
mod meter;
pub mod metrics;
mod moved;
pub mod newest;
pub mod origin;
pub mod output;
pub mod pace;
pub mod phases;
pub mod pictures;
pub mod plan;
pub mod preference;
pub mod profile;
pub mod progress;
pub mod provenance;
pub mod records;
pub mod report;
pub mod resolve;
pub mod run_dir;
pub mod samples;
pub mod saving;
pub mod schedule;
pub mod seal;
pub mod session;
pub mod settings;
pub mod shell;
pub mod signals;
pub mod state;
mod stream;
pub mod task;
pub mod tensorboard;
pub mod tokenise;
pub mod train;
mod trained;
pub mod training;

use std::io::{self, Write};
use std::process::ExitCode;

use args::{Cli, Command};
use clap::CommandFactory;
use data_show::DataCommand;
use error::{Code, Failure};

/// Does what the command line says, tells what went wrong, and says with which code to exit.
pub fn run(Cli { mut command, cpu }: Cli) -> ExitCode {
    signals::survive();
    if let Some(Err(error)) = cpu.map(highwater::op::cpu::limit) {
        return fail(&command, &Failure::new(Code::Internal, error));
    }
    if let Err(failure) = hub::localise(&mut command) {
        return fail(&command, &failure);
    }
    let done = match &command {
        Command::Train(args) => train::train(args),
        Command::Doctor(args) => doctor::doctor(args).map(|()| ExitCode::SUCCESS),
        Command::Plan(args) => plan::plan(args),
        Command::Init(args) => init::init(args),
        Command::Resume(args) => train::resume(args),
        Command::Measure(args) => machine::measure(args).map(|()| ExitCode::SUCCESS),
        Command::Tokenise(args) => tokenise::tokenise(args).map(|()| ExitCode::SUCCESS),
        Command::Eval(args) => eval::eval(args),
        Command::Completions(args) => shell::completions(args, &Cli::command()),
        Command::Man(args) => shell::man(args, &Cli::command()),
        Command::Generate(args) => generate::generate(args),
        Command::Chat(args) => chat::chat(args),
        Command::Merge(args) => lora::merge(args),
        Command::Export(args) => export::export(args),
        Command::Data(DataCommand::Show(args)) => data_show::show(args).map(|()| ExitCode::SUCCESS),
    };
    signals::stand_by();
    let done = done.and_then(|code| output::check().map(|()| code));
    done.unwrap_or_else(|failure| fail(&command, &failure))
}

/// Tells of a failure, and says with which code to exit.
fn fail(command: &Command, failure: &Failure) -> ExitCode {
    output::news(&failure.to_string());
    if command.json() {
        output::result(&failure.json().to_string());
    }
    ExitCode::from(failure.code())
}

/// Tells of a command line that cannot be understood, or of help that was asked for, and says with which
/// code to exit.
pub fn misunderstood(error: &clap::Error) -> ExitCode {
    // clap passes on what Rust says of a number.
    let text = error.to_string();
    let text = text.replace(
        "number too large to fit in target type",
        "the number is too large",
    );
    match text.strip_prefix("error: ") {
        Some(wrong) if error.use_stderr() => {
            output::news(format!("error[HW1002]: {wrong}").trim_end());
            if std::env::args_os().any(|arg| arg == "--json") {
                let failure = error::Failure::usage(wrong.lines().next().unwrap_or_default());
                output::result(&failure.json().to_string());
            }
        }
        _ => output::note(error.print().and_then(|()| io::stdout().flush())),
    }
    match output::check() {
        Ok(()) => ExitCode::from(error.exit_code() as u8),
        Err(failure) => {
            output::news(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}
