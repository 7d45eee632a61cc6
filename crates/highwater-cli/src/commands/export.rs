//! `export`: a model for other programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use highwater_memory::files::Draft;
use highwater_memory::{DiskFiles, Files};
use highwater_models::adapter::WEIGHTS;
use highwater_models::gguf::{self, GgufError, GgufType};

use crate::config::RunConfig;
use crate::data::tokenizer::{Limit, check_room};
use crate::error::{Code, Failure, OTHER_TOKENIZER};
use crate::folder::digest::check_tokenizer;
use crate::folder::new::check_new;
use crate::folder::{Newest, RunDir, Which, copies};
use crate::terminal::output;
use crate::terminal::signals::end_tidily;

/// `export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Folder of a run, or a Hugging Face model folder
    pub dir: PathBuf,

    /// Which model of a run.
    #[command(flatten)]
    pub which: Which,

    /// New GGUF file
    #[arg(long, value_name = "FILE.gguf")]
    pub out: PathBuf,

    /// Data type of the matrices
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub dtype: Held,
}

/// How matrices are held.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Held {
    /// 32-bit floats.
    F32,
    /// float16.
    F16,
    /// bfloat16.
    Bf16,
    /// 8-bit integers in blocks of 32: 8.5 bits per weight.
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
            GgufError::Config(error) => error.into(),
            error @ GgufError::Json { .. } => Self::new(Code::Files, error)
                .id("HW1014")
                .hint(OTHER_TOKENIZER),
            error @ GgufError::Range { .. } => Self::new(Code::Files, error).id("HW1043"),
            error @ GgufError::Unsupported { .. } => Self::new(Code::Usage, error)
                .id("HW1043")
                .hint("use the model's folder instead: transformers and this program can load it"),
        }
    }
}

/// Writes a model as one GGUF file.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let files = DiskFiles;
    end_tidily().map_err(|error| Failure::system("listen to signals", &error))?;
    let found = model_folder(&files, &args.dir, args.which)?;
    check_new(&args.out)?;
    if let Some(parent) = args
        .out
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        files.create_dir_all(parent)?;
    }
    let model = found.as_model(&args.dir);
    check_room(
        &files,
        &model.folder.join("tokenizer.json"),
        &Limit::of_process(),
    )?;
    let done = gguf::export(&files, &model, &args.out, args.dtype.into())?;
    for note in &done.notes {
        output::news(&format!("note: {note}"));
    }
    output::result(&format!("{} tensors: {}", done.tensors, args.out.display()));
    Ok(ExitCode::SUCCESS)
}

/// Where a whole model is.
enum Found<'a> {
    /// In a folder.
    Folder(PathBuf),
    /// Its weights in a saved state of a run, all else in a draft.
    Saved(PathBuf, Draft<'a>),
}

impl Found<'_> {
    fn as_model<'a>(&'a self, run: &'a Path) -> gguf::Source<'a> {
        match self {
            Self::Folder(folder) => gguf::Source::folder(folder),
            Self::Saved(weights, draft) => gguf::Source {
                folder: draft.path(),
                weights,
                called: run,
            },
        }
    }
}

/// Finds the weights of a whole model and the other files of its folder.
fn model_folder<'a>(files: &'a dyn Files, dir: &Path, which: Which) -> Result<Found<'a>, Failure> {
    let has =
        |folder: &Path, name: &str| Ok::<_, Failure>(files.metadata(&folder.join(name))?.is_some());
    let adapters = |folder: &Path| {
        let message = format!("{} has adapters, not a whole model", folder.display());
        let merge = format!("`highwater merge {} --out MERGED` first", dir.display());
        Err(Failure::usage(message).hint(merge))
    };
    if let Some(config) = RunConfig::of_folder(files, dir)? {
        if config.model.lora.is_some() {
            return adapters(dir);
        }
        match which.find(files, dir)? {
            Some(Newest::Final(folder)) => return Ok(Found::Folder(folder)),
            Some(Newest::Saved(saved)) => {
                check_tokenizer(files, &config)?;
                let draft = Draft::folder(files, &dir.join("model"))?;
                copies::beside_model(files, &config, draft.path())?;
                let json = draft.path().join("config.json");
                copies::copy(files, &RunDir::model_of(dir), &json)?;
                return Ok(Found::Saved(saved.path().to_owned(), draft));
            }
            None => {}
        }
    }
    let last = dir.join("final");
    which.check_none()?;
    for folder in [&*last, dir] {
        if has(folder, WEIGHTS)? {
            return adapters(folder);
        }
        if has(folder, "config.json")? {
            return Ok(Found::Folder(folder.to_owned()));
        }
    }
    let failure = Failure::usage(format!(
        "{}: there is no model (config.json)",
        dir.display()
    ));
    Err(failure.hint("name the folder of a run that has saved something, or of a model"))
}
