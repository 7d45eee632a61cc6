//! The command line.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use highwater::op::cpu::Level;

use super::chat::ChatArgs;
use super::data_show::DataCommand;
use super::doctor::DoctorArgs;
use super::eval::EvalArgs;
use super::export::ExportArgs;
use super::generate::GenerateArgs;
use super::init::InitArgs;
use super::measure::MeasureArgs;
use super::merge::MergeArgs;
use super::plan::PlanArgs;
use super::shell::{CompletionsArgs, ManArgs};
use super::tokenize::TokenizeArgs;
use crate::args::{ResumeArgs, TrainArgs};
use crate::error::EXIT_CODES;

/// Commands for newcomers.
const FIRST_STEPS: &str =
    "First steps, with a Hugging Face model folder and a file of conversations:
  highwater plan  --model ./M --data chats.jsonl --lora 8 --memory 8GiB   does it fit?
  highwater data show chats.jsonl --model ./M                             what is trained on?
  highwater train --model ./M --data chats.jsonl --lora 8 --memory 8GiB --val 5% --out runs/a
  highwater chat  runs/a
  highwater merge runs/a --out merged";

/// Trains language models and image classifiers within a memory budget.
#[derive(Debug, Parser)]
#[command(name = "highwater", version, after_help = format!("{FIRST_STEPS}\n\n{EXIT_CODES}"))]
#[command(arg_required_else_help = true, infer_subcommands = false)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Restrict kernels to an instruction set, so that results match those of an older CPU [default: the newest one
    /// that this CPU has]
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        help_heading = "Global options"
    )]
    #[arg(value_parser = PossibleValuesParser::new(Level::ALL.map(Level::name)).try_map(|name| name.parse::<Level>()))]
    pub cpu: Option<Level>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model. Without flags, a small model on a built-in text, in 64 MiB.
    #[command(after_help = more::<TrainArgs>("train"), alias = "finetune")]
    Train(Box<TrainArgs>),
    /// Predict memory and time of a training step, and how they change with the memory budget.
    #[command(after_help = more::<PlanArgs>("plan"))]
    Plan(Box<PlanArgs>),
    /// Write a config.toml with settings that fit this machine.
    #[command(after_help = more::<InitArgs>("init"))]
    Init(Box<InitArgs>),
    /// Resume a run from its last saved state. New values of settings hold for later resumes too.
    #[command(after_help = more::<ResumeArgs>("resume"))]
    Resume(ResumeArgs),
    /// Evaluate a model on a dataset: mean loss, and perplexity of text or accuracy of images.
    Eval(EvalArgs),
    /// Continue a text with a trained model.
    Generate(GenerateArgs),
    /// Chat with a trained model. Each line of the standard input is a turn; /reset starts over.
    Chat(ChatArgs),
    /// Merge LoRA adapters into their model. The result loads in transformers.
    #[command(alias = "fuse")]
    Merge(MergeArgs),
    /// Export a model as a GGUF file, for llama.cpp and programs based on it.
    Export(ExportArgs),
    /// Inspect a dataset before training.
    #[command(subcommand)]
    Data(DataCommand),
    /// Print this machine's memory, limits and measured speed.
    Doctor(DoctorArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands.
    Man(ManArgs),
    /// Measure the machine and print its rates. Other commands start this.
    #[command(hide = true)]
    Measure(MeasureArgs),
    /// Tokenize data. Other commands start this, so that the memory is freed afterwards.
    #[command(hide = true, name = "tokenise")]
    Tokenize(TokenizeArgs),
}

impl Cli {
    /// The command line that the program was started with.
    ///
    /// # Errors
    /// clap's, for a line that cannot be understood, and for help that is asked for.
    pub fn read() -> Result<Self, clap::Error> {
        let is_all = std::env::args_os().any(|word| word == "--help-all");
        let program = if is_all {
            Self::full()
        } else {
            Self::command()
        };
        Self::from_arg_matches(&program.try_get_matches()?)
    }

    /// The command line, with all flags in its help.
    pub(super) fn full() -> clap::Command {
        let mut program = Self::command();
        let commands = program.get_subcommands();
        let has_more =
            |command: &&clap::Command| command.get_arguments().any(|it| it.get_id() == "help_all");
        let commands = commands.filter(has_more).map(clap::Command::get_name);
        let names: Vec<_> = commands.map(str::to_owned).collect();
        for name in names {
            program = program.mut_subcommand(name, |command| {
                let show = |arg: Arg| arg.hide_short_help(false).hide_long_help(false);
                command.mut_args(show).after_help(EXIT_CODES)
            });
        }
        program
    }
}

/// The last line of help that shows only the essential flags.
fn more<A: Args>(command: &str) -> String {
    let flags = A::augment_args(clap::Command::new("all"));
    let own = flags.get_arguments();
    let own = own.filter(|arg| !arg.is_positional() && !arg.is_hide_set());
    // With --help and --cpu, which every command has.
    let count = own.count() + 2;
    format!("`highwater {command} --help-all` shows all {count} flags.")
}

impl Command {
    /// Whether results are wanted as JSON, failures too.
    pub fn json(&self) -> bool {
        match self {
            Self::Train(args) => args.json,
            Self::Plan(args) => args.json,
            Self::Resume(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Eval(args) => args.json,
            Self::Init(_)
            | Self::Generate(_)
            | Self::Chat(_)
            | Self::Merge(_)
            | Self::Export(_)
            | Self::Data(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Measure(_)
            | Self::Tokenize(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;
    use std::path::{Path, PathBuf};

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// What is said of a command and its flags, and of the commands below it.
    fn helps(command: &clap::Command, found: &mut Vec<String>) {
        let about = command.get_about().into_iter();
        let args = command.get_arguments();
        let flags = args.filter_map(|arg| arg.get_long_help().or(arg.get_help()));
        found.extend(about.chain(flags).map(ToString::to_string));
        let values = command.get_arguments().flat_map(Arg::get_possible_values);
        found.extend(values.filter_map(|value| value.get_help().map(ToString::to_string)));
        let below = command.get_subcommands().filter(|it| !it.is_hide_set());
        below.for_each(|command| helps(command, found));
    }

    #[test]
    fn help_is_in_short_sentences_and_in_the_words_of_the_field() {
        let mut found = Vec::new();
        helps(&Cli::full(), &mut found);
        assert!(found.len() > 200, "{}", found.len());
        let avoided = "answers told learnt beside pictures records waits halves lesser";
        for help in found {
            let (said, _) = help.split_once(" [default").unwrap_or((&help, ""));
            for sentence in said.split(". ") {
                let words = sentence.split_whitespace();
                assert!(words.count() <= 25, "{sentence}");
            }
            let mut words = said.split(|c: char| !c.is_alphabetic());
            let is_avoided = |word: &&str| avoided.split(' ').any(|it| it == *word);
            // Of pairs, which have answers.
            let is_pair = said.contains("chosen and rejected") || said.contains("Likelihoods");
            assert!(is_pair || words.all(|word| !is_avoided(&word)), "{help}");
        }
    }

    /// The pages of the book, folders within folders too.
    fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }

    /// The words of a command as a shell has them: quoted ones are one word, comments and pipes end it.
    fn words(command: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (i, part) in command.split('"').enumerate() {
            if i % 2 == 1 {
                words.push(part.to_owned());
                continue;
            }
            let part_words = part.split_whitespace();
            let end = |word: &&str| matches!(*word, "#" | "|" | ">" | "&&");
            for word in part_words.clone().take_while(|word| !end(word)) {
                words.push(word.to_owned());
            }
            if part_words.clone().any(|word| end(&word)) {
                break;
            }
        }
        words
    }

    #[test]
    fn the_pages_show_commands_that_there_are() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = vec![root.join("README.md")];
        pages(&root.join("docs"), &mut found);
        let mut tried = 0;
        for page in found {
            let text = std::fs::read_to_string(&page).unwrap();
            let blocks = text.split("```").skip(1).step_by(2);
            let lines = blocks.flat_map(|block| {
                let (language, code) = block.split_once('\n').unwrap();
                // What follows a command there is what it printed.
                let prompt = match language {
                    "sh" => "",
                    "console" => "$ ",
                    _ => "there is no command",
                };
                code.lines()
                    .filter_map(move |line| line.strip_prefix(prompt))
            });
            for line in lines {
                let alone = line.strip_prefix("highwater ");
                let of_cargo = || line.strip_prefix("cargo run --release -- ");
                let Some(command) = alone.or_else(of_cargo) else {
                    continue;
                };
                let words = std::iter::once("highwater".to_owned()).chain(words(command));
                let parsed = Cli::try_parse_from(words).err();
                // Where help is asked for, the result is an error of this kind.
                let wrong = parsed.filter(|error| error.kind() != ErrorKind::DisplayHelp);
                assert!(wrong.is_none(), "{}: {line}: {wrong:?}", page.display());
                tried += 1;
            }
        }
        assert!(tried > 40, "{tried} commands");
    }

    #[test]
    fn misspelt_flags_and_verbs_get_the_nearest_name() {
        for (line, expected) in [
            ("highwater train --memroy 1GiB", "--memory"),
            ("highwater tain", "train"),
            ("highwater train --schedule cosin", "cosine"),
            ("highwater train --order shufled", "shuffled"),
            ("highwater train --memory 1Gibi", "64MiB"),
        ] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
