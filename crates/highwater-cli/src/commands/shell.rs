//! `completions` and `man`: what shells and `man` know of this program's flags, made of the command line itself.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use highwater_memory::saved::write_atomic;
use highwater_memory::{DiskFiles, Files};

use crate::error::{Code, Failure};
use crate::terminal::output;

/// `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write a page for each command to a folder, such as ~/.local/share/man/man1
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Prints a script that completes this program's commands and flags.
///
/// # Errors
/// None but a mistake of the program.
pub fn completions(args: &CompletionsArgs, program: &Command) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let mut command = shown(program);
    clap_complete::generate(args.shell, &mut command, "highwater", &mut script);
    print(script)
}

/// Prints the program's manual page, or writes that of each command.
///
/// # Errors
/// [`Failure`] if a file cannot be written.
pub fn man(args: &ManArgs, program: &Command) -> Result<ExitCode, Failure> {
    let mut command = shown(program);
    command.build();
    let Some(folder) = &args.out else {
        return print(page(command)?);
    };
    let files = DiskFiles;
    files.create_dir_all(folder)?;
    let mut pages = Vec::new();
    collect(command, &mut pages)?;
    for (name, _) in &pages {
        check_own(&folder.join(name))?;
    }
    for (name, page) in &pages {
        write_atomic(&files, &folder.join(name), page)?;
    }
    let folder = folder.display();
    output::result(&format!("{} pages: {folder}", pages.len()));
    Ok(ExitCode::SUCCESS)
}

/// That a page may be written: nothing is there, or an earlier page of this program.
fn check_own(path: &Path) -> Result<(), Failure> {
    let found = std::fs::read(path);
    let is_free = match &found {
        Ok(text) => text.windows(13).any(|part| part == b".TH highwater"),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if is_free {
        return Ok(());
    }
    let message = format!("{}: this is not a manual page of highwater", path.display());
    Err(Failure::usage(message).hint("move it away, or choose another folder"))
}

/// The pages of a command and of those below it, by their names.
fn collect(command: Command, pages: &mut Vec<(String, Vec<u8>)>) -> Result<(), Failure> {
    let below: Vec<_> = command.get_subcommands().cloned().collect();
    let name = command.get_display_name().unwrap_or(command.get_name());
    pages.push((format!("{name}.1"), Vec::new()));
    let at = pages.len() - 1;
    pages[at].1 = page(command)?;
    let mut below = below.into_iter();
    below.try_for_each(|command| collect(command, pages))
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    let rendered = Man::new(command).render(&mut page);
    rendered.map_err(|error| Failure::new(Code::Internal, error))?;
    Ok(page)
}

/// The command line without what only this program itself starts, and without `help`.
fn shown(command: &Command) -> Command {
    let all: Vec<_> = command.get_subcommands().cloned().collect();
    let each = all.into_iter().filter(|command| !command.is_hide_set());
    let mut alone = Command::new("highwater")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true);
    alone = match command.get_about() {
        Some(about) => alone.about(about.clone()),
        None => alone,
    };
    alone = match command.get_after_help() {
        Some(codes) => alone.after_help(codes.clone()),
        None => alone,
    };
    alone
        .args(command.get_arguments().cloned())
        .subcommands(each)
}

fn print(text: Vec<u8>) -> Result<ExitCode, Failure> {
    let text = String::from_utf8(text).map_err(|error| Failure::new(Code::Internal, error))?;
    output::result(text.trim_end());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cli::Cli;

    #[test]
    fn scripts_and_pages_name_commands_and_flags_and_nothing_hidden() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::PowerShell,
            Shell::Elvish,
        ] {
            let mut script = Vec::new();
            let mut command = shown(&Cli::full());
            clap_complete::generate(shell, &mut command, "highwater", &mut script);
            let script = String::from_utf8(script).unwrap();
            for name in [
                "train",
                "resume",
                "completions",
                "memory",
                "lora-targets",
                "cpu",
            ] {
                assert!(script.contains(name), "{shell}: {name}");
            }
            let has_values = !matches!(shell, Shell::PowerShell | Shell::Elvish);
            assert!(!has_values || script.contains("cosine"), "{shell}");
            assert!(
                !script.contains("tokenise") && !script.contains("measure)"),
                "{shell}"
            );
        }
        let mut command = shown(&Cli::full());
        command.build();
        let mut pages = Vec::new();
        collect(command, &mut pages).unwrap();
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in [
            "highwater.1",
            "highwater-train.1",
            "highwater-data-show.1",
            "highwater-man.1",
        ] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(!names.contains(&"highwater-measure.1"), "{names:?}");
        let page = |name| pages.iter().find(|(of, _)| of == name).unwrap().1.clone();
        let train = String::from_utf8(page("highwater-train.1")).unwrap();
        let train = train.replace("\\-", "-");
        assert!(
            train.contains("--memory") && train.contains(".TH"),
            "{train}"
        );
    }
}
