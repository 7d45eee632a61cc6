//! What decides about the computation, shared by `train`, `plan` and `init`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use highwater_memory::Bytes;
use highwater_models::{Decay, Order, TokenWidth};

use super::assignment::Assignment;
use super::lora::LoraArgs;
use super::preference::PreferenceArgs;
use super::records::RecordsArgs;
use super::values::{share, token_width};
use crate::config::{
    DiskConfig, Forbid, Master, Moments, OptimizerKind, Policy, Precision, Schedule, Task,
};

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
