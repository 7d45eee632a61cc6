//! `generate`: continues a text with a trained model.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use highwater::{Engine, Module};
use highwater_memory::{Bytes, DiskFiles, Files};
use highwater_models::{Gpt2, Gpt2Config, Sampling, Tokenizer, generate as sample};

use crate::args::GenerateArgs;
use crate::config::RunConfig;
use crate::error::Failure;
use crate::{output, state};

/// What a model gets that no run's settings say anything about, beside its weights.
const DEFAULT_ROOM: u64 = 1 << 30;

/// Where a model lies, and what it may use.
struct Place {
    folder: PathBuf,
    weights: PathBuf,
    memory: Option<Bytes>,
}

/// Continues a text.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn generate(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let files = DiskFiles;
    if !(args.temperature.is_finite() && args.temperature >= 0.0) {
        return Err(Failure::usage("--temperature must be a number from 0 up"));
    }
    let place = place(&files, args)?;
    let config = Gpt2Config::read(&files, &place.folder.join("config.json"))?;
    let tokenizer = tokenizer(&files, &place.folder, &config)?;
    let weights = 4 * config
        .parameters()
        .map(|parameter| parameter.numel())
        .sum::<u64>();
    let memory = args
        .memory
        .or(place.memory)
        .unwrap_or(Bytes(weights + DEFAULT_ROOM));
    let mut builder = Engine::builder().memory(memory.0);
    if let Some(threads) = args.threads {
        builder = builder.threads(threads);
    }
    let engine = builder.build()?;
    let model = Gpt2::new(&engine, config)?;
    state::read_tensors(&files, &place.weights, &model.named_parameters())?;
    let prompt = tokenizer.encode(&args.prompt)?;
    if prompt.is_empty() {
        return Err(Failure::usage("--prompt must have at least one character"));
    }
    let sampling = Sampling {
        temperature: args.temperature,
        seed: args.seed,
    };
    let tokens = sample(&model, &prompt, args.tokens, sampling, |_| {})?;
    output::result(&tokenizer.decode(&tokens)?);
    Ok(ExitCode::SUCCESS)
}

/// A run's final model, or its newest saved state, or a model folder.
fn place(files: &dyn Files, args: &GenerateArgs) -> Result<Place, Failure> {
    if let Some(folder) = &args.model {
        let weights = folder.join("model.safetensors");
        return Ok(Place {
            folder: folder.clone(),
            weights,
            memory: None,
        });
    }
    let nothing = || Failure::usage("say the folder of a run, or --model FOLDER");
    let dir = args.dir.as_deref().ok_or_else(nothing)?;
    let memory = RunConfig::read(files, &dir.join("config.toml")).ok();
    let memory = memory.map(|config| config.machine.memory);
    let folder = dir.join("final");
    if files.metadata(&folder.join("model.safetensors"))?.is_some() {
        let weights = folder.join("model.safetensors");
        return Ok(Place {
            folder,
            weights,
            memory,
        });
    }
    match state::newest(files, &dir.join("checkpoints"))? {
        Some(saved) => {
            let weights = saved.path().join("model.safetensors");
            Ok(Place {
                folder: dir.to_owned(),
                weights,
                memory,
            })
        }
        None => Err(Failure::usage(format!("{} holds no model", dir.display()))
            .hint("name the folder of a run that has saved something, or --model FOLDER")),
    }
}

/// The folder's tokenizer; bytes for a model that is small enough to be about them.
fn tokenizer(files: &dyn Files, folder: &Path, config: &Gpt2Config) -> Result<Tokenizer, Failure> {
    let path = folder.join("tokenizer.json");
    if files.metadata(&path)?.is_some() {
        return Ok(Tokenizer::load(files, &path)?);
    }
    if config.vocab_size <= 1024 {
        return Ok(Tokenizer::Bytes);
    }
    Err(
        Failure::usage(format!("{}: there is no tokenizer.json", folder.display()))
            .hint("put the model's tokenizer.json beside its weights"),
    )
}
