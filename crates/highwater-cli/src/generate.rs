//! `generate`: continues a text with a trained model.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use highwater::Engine;
use highwater_memory::{Bytes, DiskFiles, Files};
use highwater_models::adapter::is_adapter;
use highwater_models::{
    Architecture, Sampling, Tokenizer, WeightsFolder, generate as sample, load_adapter,
};

use crate::args::GenerateArgs;
use crate::config::{DiskConfig, ModelSource, RunConfig};
use crate::error::Failure;
use crate::lora::{LoraConfig, Quantize};
use crate::task::Blueprint;
use crate::{lora, output, state};

/// What a model gets that no run's settings say anything about, beside its weights.
const DEFAULT_ROOM: u64 = 1 << 30;

/// Where a model lies, and what it may use.
struct Place {
    config: PathBuf,
    tokenizer: Option<PathBuf>,
    /// Its folder, whose weights may be several files.
    weights: PathBuf,
    /// What was trained beside it.
    adapters: Option<Adapters>,
    /// How it was held meanwhile.
    quantize: Option<Quantize>,
    memory: Option<Bytes>,
    disk: Option<DiskConfig>,
    /// The most tokens that it was trained to look back on.
    context: usize,
}

/// Where adapters are.
enum Adapters {
    /// In PEFT's files.
    Folder(PathBuf),
    /// In a saved state.
    Saved(LoraConfig, PathBuf),
}

impl Place {
    /// A Hugging Face model folder.
    fn folder(files: &dyn Files, folder: &Path, memory: Option<Bytes>) -> Result<Self, Failure> {
        let tokenizer = folder.join("tokenizer.json");
        Ok(Self {
            config: folder.join("config.json"),
            tokenizer: files.metadata(&tokenizer)?.map(|_| tokenizer),
            weights: folder.to_owned(),
            adapters: None,
            quantize: None,
            memory,
            disk: None,
            context: usize::MAX,
        })
    }
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
    if args
        .threads
        .is_some_and(|threads| !(1..=1024).contains(&threads))
    {
        return Err(Failure::usage("--threads must be 1 to 1024"));
    }
    let place = place(&files, args)?;
    let blueprint = Blueprint::read(&files, &place.config)?;
    let config = blueprint.text()?;
    let tokenizer = tokenizer(&files, &place, config)?;
    let weights = 4 * config.parameter_count();
    let memory = args
        .memory
        .or(place.memory)
        .unwrap_or(Bytes(weights + DEFAULT_ROOM));
    let mut builder = Engine::builder().memory(memory.0);
    // What a run trained from disk need not fit into its memory.
    let is_short = args.memory.is_none() && memory.0 < weights + DEFAULT_ROOM;
    if let Some(disk) = place.disk.as_ref().filter(|_| is_short) {
        builder = builder.disk(&disk.folder, disk.bytes.0);
    }
    if let Some(threads) = args.threads {
        builder = builder.threads(threads);
    }
    let engine = builder.build()?;
    let model = match place.quantize {
        Some(quantize) => config.build_held(&engine, quantize.format())?,
        None => config.build(&engine)?,
    };
    lora::read_base(&files, &place.weights, &*model)?;
    match &place.adapters {
        None => {}
        Some(Adapters::Folder(folder)) => {
            load_adapter(&files, folder, &*model)?;
        }
        Some(Adapters::Saved(lora, path)) => {
            lora.adapt(&*model)?;
            let mut own = model.named_parameters();
            own.retain(|(name, _)| is_adapter(name));
            state::read_tensors(&mut WeightsFolder::of_file(&files, path)?, &own, "")?;
        }
    }
    let prompt = tokenizer.encode(&args.prompt)?;
    if prompt.is_empty() {
        return Err(Failure::usage("--prompt must have at least one character"));
    }
    let sampling = Sampling {
        temperature: args.temperature,
        seed: args.seed,
        context: place.context,
    };
    let tokens = sample(&*model, &prompt, args.tokens, sampling, |_| {})?;
    output::result(&tokenizer.decode(&tokens)?);
    Ok(ExitCode::SUCCESS)
}

/// A run's final model, or its newest saved state, or a model folder.
fn place(files: &dyn Files, args: &GenerateArgs) -> Result<Place, Failure> {
    if let Some(folder) = &args.model {
        state::check_weights(files, folder)?;
        return Place::folder(files, folder, None);
    }
    let nothing = || {
        Failure::usage("generate needs a model").hint(
            "name the folder of a run, such as runs/gpt2-nano, or --model FOLDER for a Hugging Face model",
        )
    };
    let dir = args.dir.as_deref().ok_or_else(nothing)?;
    let run = RunConfig::read(files, &dir.join("config.toml")).ok();
    let memory = run.as_ref().map(|run| run.machine.memory);
    let disk = run.as_ref().and_then(|run| run.machine.disk.clone());
    let context = run.as_ref().map_or(usize::MAX, RunConfig::context);
    let beside = run
        .as_ref()
        .and_then(|run| match (&run.model.lora, &run.model.source) {
            (Some(lora), ModelSource::Folder(base)) => Some((lora.clone(), base.clone())),
            _ => None,
        });
    if let Some((lora, base)) = beside {
        state::check_weights(files, &base)?;
        if let Some(run) = &run {
            lora::check_base(files, run)?;
        }
        let mut found = lora::adapters(files, dir)?.map(Adapters::Folder);
        if found.is_none() {
            let saved = state::newest(files, &dir.join("checkpoints"))?;
            found =
                saved.map(|saved| Adapters::Saved(lora.clone(), saved.path().join(state::MODEL)));
        }
        if found.is_some() {
            return Ok(Place {
                adapters: found,
                quantize: lora.quantize,
                disk,
                context,
                tokenizer: run.and_then(|run| run.model.tokenizer),
                // What a run kept to had no room for the model in `F32`.
                ..Place::folder(files, &base, None)?
            });
        }
    }
    let folder = dir.join("final");
    if files.metadata(&folder.join("model.safetensors"))?.is_some() {
        let place = Place::folder(files, &folder, memory)?;
        return Ok(Place {
            disk,
            context,
            ..place
        });
    }
    if state::check_weights(files, dir).is_ok() {
        return Place::folder(files, dir, None);
    }
    match state::newest(files, &dir.join("checkpoints"))? {
        Some(saved) => Ok(Place {
            config: dir.join("model.json"),
            tokenizer: run.and_then(|run| run.model.tokenizer),
            weights: saved.path().to_owned(),
            adapters: None,
            quantize: None,
            memory,
            disk,
            context,
        }),
        None => Err(
            Failure::usage(format!("{}: there is no model", dir.display()))
                .hint("name the folder of a run that has saved something, or --model FOLDER"),
        ),
    }
}

/// The model's tokenizer; bytes for a model that is small enough to be about them.
fn tokenizer(
    files: &dyn Files,
    place: &Place,
    config: &dyn Architecture,
) -> Result<Tokenizer, Failure> {
    match &place.tokenizer {
        Some(path) => Ok(Tokenizer::load(files, path)?),
        None if config.vocab_size() <= 1024 => Ok(Tokenizer::Bytes),
        None => Err(Failure::usage(format!(
            "{}: there is no tokenizer.json for this model",
            place.config.display()
        ))
        .hint("put the model's tokenizer.json beside its weights")),
    }
}
