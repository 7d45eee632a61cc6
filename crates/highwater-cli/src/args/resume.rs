//! The flags of `resume`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use highwater_memory::Bytes;

use super::output::OutputArgs;
use crate::config::DiskConfig;

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
