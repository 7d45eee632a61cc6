//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use highwater::op::cpu::Level;
use highwater_memory::Bytes;
use highwater_models::{Decay, Order, TokenWidth};

use crate::chat::ChatArgs;
use crate::config::{DiskConfig, Forbid, Master, Moments, OptimizerKind, Policy, Precision};
use crate::data_show::DataCommand;
use crate::doctor::DoctorArgs;
use crate::error::EXIT_CODES;
use crate::eval::EvalArgs;
use crate::export::ExportArgs;
use crate::generate::GenerateArgs;
use crate::init::InitArgs;
use crate::lora::{LoraArgs, MergeArgs};
use crate::machine::MeasureArgs;
use crate::preference::PreferenceArgs;
use crate::records::RecordsArgs;
use crate::saving::OutputArgs;
use crate::schedule::Schedule;
use crate::settings::Assignment;
use crate::shell::{CompletionsArgs, ManArgs};
use crate::task::Task;
use crate::tokenise::TokeniseArgs;

/// What somebody who has just come may want.
const FIRST_STEPS: &str =
    "First steps, with a Hugging Face model folder and a file of conversations:
  highwater plan  --model ./M --data chats.jsonl --lora 8 --memory 8GiB   does it fit?
  highwater data show chats.jsonl --model ./M                             what is learnt?
  highwater train --model ./M --data chats.jsonl --lora 8 --memory 8GiB --val 5% --out runs/a
  highwater chat  runs/a
  highwater merge runs/a --out merged";

/// Trains models of text and of pictures inside a memory budget.
#[derive(Debug, Parser)]
#[command(name = "highwater", version, about, after_help = format!("{FIRST_STEPS}\n\n{EXIT_CODES}"))]
#[command(arg_required_else_help = true, infer_subcommands = false)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Instructions that kernels use at most, for numbers as a lesser processor has them [default: the best
    /// that this one has]
    #[arg(long, global = true, value_name = "LEVEL")]
    #[arg(value_parser = PossibleValuesParser::new(Level::ALL.map(Level::name)).try_map(|name| name.parse::<Level>()))]
    pub cpu: Option<Level>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model; without arguments a small one, on this program's guide, in 64 MiB.
    #[command(after_help = EXIT_CODES, alias = "finetune")]
    Train(Box<TrainArgs>),
    /// Say whether training fits into a budget, what it costs, and what more memory would buy.
    Plan(Box<PlanArgs>),
    /// Write a config.toml that fits this machine, with a word on each setting.
    Init(Box<InitArgs>),
    /// Go on with a run from its last complete saved state.
    Resume(ResumeArgs),
    /// Measure a model on all of some data: mean loss, and perplexity of text or accuracy on images.
    Eval(EvalArgs),
    /// Continue a text with a trained model.
    Generate(GenerateArgs),
    /// Talk with a trained model: a line of the standard input is a turn.
    Chat(ChatArgs),
    /// Add the adapters of a run to its model, as a folder that transformers loads.
    #[command(alias = "fuse")]
    Merge(MergeArgs),
    /// Write a model as one GGUF file, for llama.cpp and what is built on it.
    Export(ExportArgs),
    /// Look at data before it is trained on.
    #[command(subcommand)]
    Data(DataCommand),
    /// Say what this machine offers and what limits it sets.
    Doctor(DoctorArgs),
    /// Print a script that completes commands and flags in a shell.
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands.
    Man(ManArgs),
    /// Measure the machine and print its rates: what other commands start when they need them.
    #[command(hide = true)]
    Measure(MeasureArgs),
    /// Make the tokens of a text: what other commands start, for the memory that it takes.
    #[command(hide = true)]
    Tokenise(TokeniseArgs),
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
            | Self::Tokenise(_) => false,
        }
    }
}

/// `train`.
#[derive(Args, Clone, Debug, Default)]
#[command(allow_negative_numbers = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct TrainArgs {
    /// What decides about the computation.
    #[command(flatten)]
    pub run: RunArgs,

    /// Folder for the run [default: runs/ and the model's name, numbered if in use]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,

    /// What is kept.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Print the resolved settings and the plan, and do nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,

    /// At the end, print what each operation took, beside what this machine does at most
    #[arg(long, help_heading = "Output")]
    pub profile: bool,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Replace the run that is in the folder
    #[arg(long, help_heading = "Output")]
    pub force: bool,
}

/// `plan`.
#[derive(Args, Debug, Default)]
#[command(allow_negative_numbers = true)]
pub struct PlanArgs {
    /// What decides about the computation.
    #[command(flatten)]
    pub run: RunArgs,

    /// List what the plan decided: what is computed again, written in place, updated early
    #[arg(long, help_heading = "Output")]
    pub explain: bool,

    /// Compare two plans instead: files of `plan --json`, or folders of runs
    #[arg(long, num_args = 2, value_names = ["A", "B"], help_heading = "Output")]
    pub diff: Vec<PathBuf>,

    /// Print the plan as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

// What decides about the computation, shared by `train` and `plan`. Not a doc comment: clap would
// print it as the command's description.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "see above")]
pub struct RunArgs {
    /// A config.toml to start from, of a run or with any of the settings; other flags change them
    #[arg(long, value_name = "FILE", help_heading = "Model and data")]
    pub config: Option<PathBuf>,

    /// Change a setting by its place in config.toml, such as optimizer.lr=3e-4; may be given several times
    #[arg(long, value_name = "SETTING=VALUE", help_heading = "Model and data")]
    #[arg(allow_hyphen_values = true)]
    pub set: Vec<Assignment>,

    /// What the model learns to do [default: what --model is for]
    #[arg(long, value_name = "TASK", help_heading = "Model and data")]
    pub task: Option<Task>,

    #[command(flatten)]
    pub lora: LoraArgs,

    #[command(flatten)]
    pub records: RecordsArgs,

    #[command(flatten)]
    pub preference: PreferenceArgs,

    /// Name of a preset (gpt2-nano, gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-nano, llama-1b; of pictures
    /// resnet18, resnet34, resnet50, densenet121, vit_b_16) or a model folder, as Hugging Face has them; to plan, its
    /// config.json is enough
    /// [default: gpt2-nano; of pictures resnet18]
    #[arg(long, value_name = "PRESET|FOLDER", help_heading = "Model and data")]
    pub model: Option<String>,

    /// A config.json, as Hugging Face has them, or its folder: a model as it describes, with weights drawn anew
    #[arg(long, value_name = "FILE", help_heading = "Model and data")]
    pub init_from: Option<PathBuf>,

    /// Records (conversations, instructions, texts) as .jsonl, .json, .csv, .tsv or .parquet, also as .gz or .zst; a
    /// text file; a folder of these; or tokens as .npy or .bin [default: this program's guide]; of images a
    /// folder, in which each folder has the images of one class, or train/ and val/ of such folders
    #[arg(long, value_name = "PATH", help_heading = "Model and data")]
    pub data: Option<PathBuf>,

    /// Measure the loss on this file or folder, instead of a share of the data [default: files in
    /// the data's folder with names such as valid.jsonl, val.bin or validation-*.parquet]
    #[arg(long, value_name = "PATH", help_heading = "Model and data")]
    pub eval_data: Option<PathBuf>,

    /// The tokenizer.json for text [default: the one beside the model's config.json, otherwise bytes]
    #[arg(long, value_name = "FILE", help_heading = "Model and data")]
    pub tokenizer: Option<PathBuf>,

    /// Width of the tokens of a .bin without header [default: as its zeros and the model's tokens say, otherwise u16]
    #[arg(long, value_name = "WIDTH", help_heading = "Model and data")]
    #[arg(value_parser = PossibleValuesParser::new(["u16", "u32"]).map(|text| token_width(&text)))]
    pub token_dtype: Option<TokenWidth>,

    /// Share of the data to measure the loss on, such as 0.05 or 5%, of text from its end [default: 0.05 of
    /// records, 0.1 of the guide and of pictures, otherwise 0]
    #[arg(long, visible_alias = "val", value_name = "SHARE")]
    #[arg(value_parser = share, help_heading = "Model and data")]
    pub held_out: Option<f64>,

    /// Leave out images that cannot be used, and list them, instead of refusing them
    #[arg(long, num_args = 0, default_missing_value = "true")]
    #[arg(help_heading = "Model and data")]
    pub skip_bad: Option<bool>,

    /// Order of the data [default: shuffled for nano presets, records and pictures, otherwise sequential]
    #[arg(long, value_name = "ORDER", help_heading = "Model and data")]
    #[arg(value_parser = PossibleValuesParser::new(["sequential", "shuffled"]).map(|text| order(&text)))]
    pub order: Option<Order>,

    /// Memory for the whole process, such as 64MiB or 3GiB [default: 64MiB for nano presets, otherwise
    /// nine tenths of the machine's memory or of the limit that the process is under]
    #[arg(long, value_name = "SIZE", help_heading = "Memory and machine")]
    #[arg(allow_hyphen_values = true)]
    pub memory: Option<Bytes>,

    /// Of that, what kernels work in, apart from --host-memory [default: what is left]
    #[arg(long, value_name = "SIZE", help_heading = "Memory and machine")]
    pub device_memory: Option<Bytes>,

    /// Of that, what tensors may wait in besides, before they wait on a disk [default: none]
    #[arg(long, value_name = "SIZE", help_heading = "Memory and machine")]
    pub host_memory: Option<Bytes>,

    /// Let tensors wait in a folder, in at most so much space, such as /data=40GiB: models larger than
    /// memory train from there [default: no disk is touched]
    #[arg(long, value_name = "DIR=SIZE", help_heading = "Memory and machine")]
    pub disk: Option<DiskConfig>,

    /// Do without something: disk-writes leaves the disk of --disk for weights that are not trained
    #[arg(long, value_name = "WHAT", help_heading = "Memory and machine")]
    pub forbid: Option<Vec<Forbid>>,

    /// Recompute activations when that is needed, never, or wherever possible [default: auto]
    #[arg(long, value_name = "POLICY", help_heading = "Memory and machine")]
    pub policy: Option<Policy>,

    /// Threads to compute with [default: all cores]
    #[arg(long, value_name = "N", help_heading = "Memory and machine")]
    pub threads: Option<usize>,

    /// Steps of the optimizer; 0 writes the model as it is [default: 800 for nano presets, --epochs 3 for records,
    /// otherwise 200]
    #[arg(long, alias = "iters", value_name = "N", help_heading = "Training")]
    pub steps: Option<u64>,

    /// How often the run goes through its data, instead of --steps: 3, or 0.5
    #[arg(long, alias = "num-train-epochs", value_name = "N")]
    #[arg(help_heading = "Training")]
    pub epochs: Option<f64>,

    /// Sequences or pictures in a batch [default: 4 for nano presets and records, otherwise 8]
    #[arg(
        long,
        alias = "batch-size",
        value_name = "N",
        help_heading = "Training"
    )]
    pub batch: Option<usize>,

    /// Tokens in a sequence [default: 64 for nano presets, 1024 for records, otherwise 128, or the model's most if
    /// that is less]
    #[arg(
        long,
        alias = "max-seq-length",
        value_name = "N",
        help_heading = "Training"
    )]
    pub seq: Option<usize>,

    /// Side that pictures are cut to, in pixels [default: the model folder's, otherwise 224]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub size: Option<usize>,

    /// Batches whose gradients are added up for one step [default: 1]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub accumulate: Option<usize>,

    /// Compute products in half precision: bf16 or fp16 need less memory for activations, and with fp16 the
    /// loss is scaled; weights and their gradients stay f32 unless there is a --master [default: f32]
    #[arg(long, value_name = "TYPE", help_heading = "Training")]
    pub precision: Option<Precision>,

    /// Seed of the weights, of dropout and of the order [default: 0]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub seed: Option<u64>,

    /// Probability of dropout [default: 0]
    #[arg(long, value_name = "X", help_heading = "Training")]
    pub dropout: Option<f64>,

    /// The optimizer [default: adamw]
    #[arg(long, value_name = "NAME", help_heading = "Optimizer")]
    pub optimizer: Option<OptimizerKind>,

    /// Highest learning rate [default: 2e-3 for nano presets, 1e-3 for presets of pictures, otherwise 1e-4]
    #[arg(
        long,
        alias = "learning-rate",
        value_name = "X",
        help_heading = "Optimizer"
    )]
    pub lr: Option<f64>,

    /// Steps in which the learning rate rises to it [default: a twentieth of the steps]
    #[arg(long, value_name = "N", help_heading = "Optimizer")]
    pub warmup: Option<u64>,

    /// How it goes on: cosine to a tenth, linear to zero, constant, or wsd: constant, and down to zero in the last
    /// fifth [default: cosine]
    #[arg(long, value_name = "NAME", help_heading = "Optimizer")]
    pub schedule: Option<Schedule>,

    /// Decay of the first moment, for adamw [default: 0.9]
    #[arg(long, value_name = "X", help_heading = "Optimizer")]
    pub beta1: Option<f64>,

    /// Decay of the second moment, for adamw [default: 0.99 for nano presets, otherwise 0.999]
    #[arg(long, value_name = "X", help_heading = "Optimizer")]
    pub beta2: Option<f64>,

    /// What is added to the divisor, for adamw [default: 1e-8]
    #[arg(long, value_name = "X", help_heading = "Optimizer")]
    pub eps: Option<f64>,

    /// Momentum, for sgd [default: 0]
    #[arg(long, value_name = "X", help_heading = "Optimizer")]
    pub momentum: Option<f64>,

    /// Hold weights in the half precision of --precision and add their updates to this: what f32 has beyond
    /// them (split, for bf16), all of f32, or nothing, rounded by chance (stochastic, for bf16)
    #[arg(long, value_name = "FORM", help_heading = "Optimizer")]
    pub master: Option<Master>,

    /// Hold the optimizer's moments in f32, or in a byte each: int8 [default: f32]
    #[arg(long, value_name = "TYPE", help_heading = "Optimizer")]
    pub moments: Option<Moments>,

    /// Weight decay [default: 0.1 for nano presets with adamw, otherwise 0.01 for adamw, 0 for sgd]
    #[arg(long, value_name = "X", help_heading = "Optimizer")]
    pub weight_decay: Option<f64>,

    /// Which parameters decay: those of rank 2 and more, or all [default: matrices]
    #[arg(long, value_name = "WHICH", help_heading = "Optimizer")]
    #[arg(value_parser = PossibleValuesParser::new(["matrices", "all"]).map(|text| decay(&text)))]
    pub decay: Option<Decay>,

    /// Scale gradients down to this norm; 0 leaves them as they are [default: 1 for a model folder, otherwise 0]
    #[arg(long, value_name = "X", help_heading = "Optimizer")]
    pub clip: Option<f64>,
}

/// `resume`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct ResumeArgs {
    /// Folder of the run
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Another budget, for later resumes too; the numbers stay the same
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// Another bound of what kernels work in, for later resumes too; the numbers stay the same
    #[arg(long, value_name = "SIZE", conflicts_with = "no_host_memory")]
    pub device_memory: Option<Bytes>,

    /// Another bound of what tensors may wait in besides, for later resumes too; the numbers stay the same
    #[arg(long, value_name = "SIZE", conflicts_with = "no_host_memory")]
    pub host_memory: Option<Bytes>,

    /// Go on without the run's --device-memory and --host-memory, also later: memory is one again
    #[arg(long)]
    pub no_host_memory: bool,

    /// Another folder and space for tensors to wait in, for later resumes too; the numbers stay the same
    #[arg(long, value_name = "DIR=SIZE", conflicts_with = "no_disk")]
    pub disk: Option<DiskConfig>,

    /// Go on without the run's --disk, also later
    #[arg(long)]
    pub no_disk: bool,

    /// Another number of threads; the numbers stay the same
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// Go on to another number of steps in all; a schedule stretches with it
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    pub steps: Option<u64>,

    /// The same, by how often the run goes through its data in all
    #[arg(long, value_name = "N")]
    pub epochs: Option<f64>,

    /// Where the model's folder is now, for later resumes too
    #[arg(long, value_name = "FOLDER")]
    pub model: Option<PathBuf>,
    /// Where the data is now, for later resumes too
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Where the tokenizer.json is now, for later resumes too [default: the one in the model's folder, if it was there]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,

    /// What is kept; what is not said stays as it was.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Go on although the data, the tokenizer or the model's folder is not what the run began with: ok
    #[arg(long, value_name = "OK", value_parser = PossibleValuesParser::new(["ok"]))]
    pub data_changed: Option<String>,

    /// At the end, print what each operation took, beside what this machine does at most
    #[arg(long)]
    pub profile: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// A share, as a number or in percent.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (number, of) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number < of => Ok(number / of),
        _ => Err("expected a share below 1, such as 0.05 or 5%".to_owned()),
    }
}

pub(crate) fn token_width(text: &str) -> TokenWidth {
    match text {
        "u32" => TokenWidth::U32,
        _ => TokenWidth::U16,
    }
}

fn order(text: &str) -> Order {
    match text {
        "shuffled" => Order::Shuffled,
        _ => Order::Sequential,
    }
}

fn decay(text: &str) -> Decay {
    match text {
        "all" => Decay::All,
        _ => Decay::Matrices,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_readme_shows_commands_that_there_are() {
        let readme = include_str!("../../../README.md");
        let commands = readme.lines().filter_map(|line| {
            let alone = line.strip_prefix("highwater ");
            alone.or_else(|| line.strip_prefix("cargo run --release -- "))
        });
        let mut tried = 0;
        for command in commands {
            let command = command
                .split(" #")
                .next()
                .unwrap()
                .replace("\"Memory is\"", "text");
            let words = command.split_whitespace();
            let parsed = Cli::try_parse_from(std::iter::once("highwater").chain(words));
            parsed.unwrap_or_else(|error| panic!("{command}: {error}"));
            tried += 1;
        }
        assert_eq!(tried, 19);
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
