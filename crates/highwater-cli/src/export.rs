//! `export`: a model for other programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use highwater_memory::{DiskFiles, Files};
use highwater_models::adapter::WEIGHTS;
use highwater_models::gguf::{self, GgufError, GgufType};

use crate::error::{Code, Failure};
use crate::output;

/// `export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The folder of a run that has ended, or of a model
    pub dir: PathBuf,

    /// The new file, which llama.cpp and programs built on it read
    #[arg(long, value_name = "FILE.gguf")]
    pub out: PathBuf,

    /// How matrices are held: q8_0 takes 8.5 bits for each number
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub dtype: Held,
}

/// How matrices are held.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Held {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// Google's.
    Bf16,
    /// Bytes, 32 of which share a scale.
    #[value(name = "q8_0")]
    Q8_0,
}

impl From<Held> for GgufType {
    fn from(held: Held) -> Self {
        match held {
            Held::F32 => Self::F32,
            Held::F16 => Self::F16,
            Held::Bf16 => Self::Bf16,
            Held::Q8_0 => Self::Q8_0,
        }
    }
}

impl From<GgufError> for Failure {
    fn from(error: GgufError) -> Self {
        match error {
            GgufError::Weights(error) => error.into(),
            GgufError::Tokenizer(error) => error.into(),
            GgufError::Files(error) => error.into(),
            error @ GgufError::Config { .. } => Self::new(Code::Usage, error).id("HW1033"),
            error @ GgufError::Json { .. } => Self::new(Code::Files, error).id("HW1014"),
            error @ GgufError::Range { .. } => Self::new(Code::Files, error).id("HW1043"),
            error @ GgufError::Unsupported { .. } => Self::new(Code::Usage, error)
                .id("HW1043")
                .hint("the model's folder is read by transformers, and by this program"),
        }
    }
}

/// Writes a model as one GGUF file.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let files = DiskFiles;
    let folder = model_folder(&files, &args.dir)?;
    if files.metadata(&args.out)?.is_some() {
        let message = format!("{}: it is there already", args.out.display());
        return Err(Failure::usage(message).hint("--out names a new file"));
    }
    if let Some(parent) = args
        .out
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        files.create_dir_all(parent)?;
    }
    let done = gguf::export(&files, &folder, &args.out, args.dtype.into())?;
    for note in &done.notes {
        output::news(&format!("note: {note}"));
    }
    output::result(&format!("{} tensors: {}", done.tensors, args.out.display()));
    Ok(ExitCode::SUCCESS)
}

/// The folder with the weights of a whole model.
fn model_folder(files: &dyn Files, dir: &Path) -> Result<PathBuf, Failure> {
    let last = dir.join("final");
    let has =
        |folder: &Path, name: &str| Ok::<_, Failure>(files.metadata(&folder.join(name))?.is_some());
    for folder in [&*last, dir] {
        if has(folder, WEIGHTS)? {
            let message = format!(
                "{}: adapters beside a model, and no model",
                folder.display()
            );
            let merge = format!("`highwater merge {} --out MERGED` first", dir.display());
            return Err(Failure::usage(message).hint(merge));
        }
        if has(folder, "config.json")? {
            return Ok(folder.to_owned());
        }
    }
    let failure = Failure::usage(format!(
        "{}: there is no model (config.json)",
        dir.display()
    ));
    if has(dir, "config.toml")? {
        let resume = format!(
            "the run has not ended: `highwater resume {}` first",
            dir.display()
        );
        return Err(failure.hint(resume));
    }
    Err(failure.hint("name the folder of a run that has ended, or of a model"))
}
