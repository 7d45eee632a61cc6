//! From a command line to the command that it names, and what is said where that fails.

use std::io::{self, Write};
use std::process::ExitCode;

use super::cli::{Cli, Command};
use super::data_show::{self, DataCommand};
use super::localize::localize;
use super::{
    chat, doctor, eval, export, generate, init, measure, merge, plan, shell, tokenize, train,
};
use crate::error::{Code, Failure, shortened};
use crate::terminal::{output, signals};

/// Does what the command line says, tells what went wrong, and says with which code to exit.
pub fn run(Cli { mut command, cpu }: Cli) -> ExitCode {
    signals::survive();
    if let Some(Err(error)) = cpu.map(highwater::op::cpu::limit) {
        return fail(&command, &Failure::new(Code::Internal, error));
    }
    if let Err(failure) = localize(&mut command) {
        return fail(&command, &failure);
    }
    let done = match &command {
        Command::Train(args) => train::train(args),
        Command::Doctor(args) => doctor::doctor(args).map(|()| ExitCode::SUCCESS),
        Command::Plan(args) => plan::plan(args),
        Command::Init(args) => init::init(args),
        Command::Resume(args) => train::resume(args),
        Command::Measure(args) => measure::measure(args).map(|()| ExitCode::SUCCESS),
        Command::Tokenize(args) => tokenize::tokenize(args).map(|()| ExitCode::SUCCESS),
        Command::Eval(args) => eval::eval(args),
        Command::Completions(args) => shell::completions(args, &Cli::full()),
        Command::Man(args) => shell::man(args, &Cli::full()),
        Command::Generate(args) => generate::generate(args),
        Command::Chat(args) => chat::chat(args),
        Command::Merge(args) => merge::merge(args),
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
            let wrong = shortened(wrong);
            output::news(format!("error[HW1002]: {wrong}").trim_end());
            if std::env::args_os().any(|arg| arg == "--json") {
                let failure = Failure::usage(wrong.lines().next().unwrap_or_default());
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
