//! `generate`: continues a text with a trained model.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use highwater::Engine;
use highwater_memory::{Bytes, DiskFiles, Files};
use highwater_models::adapter::is_adapter;
use highwater_models::{
    Architecture, CausalLm, Sampling, Tokenizer, WeightsFolder, generate as sample, load_adapter,
};

use crate::config::{DiskConfig, ModelSource, RunConfig};
use crate::error::Failure;
use crate::lora::{LoraConfig, Quantize};
use crate::run_dir::RunDir;
use crate::task::Blueprint;
use crate::{base, lora, output, state};

/// What a model gets that no run's settings say anything about, beside its weights.
const DEFAULT_ROOM: u64 = 1 << 30;

/// A trained model, and how tokens are drawn from it: shared by `generate` and `chat`.
#[derive(Args, Debug)]
pub struct SampleArgs {
    /// Folder of a run
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// A Hugging Face model folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "dir")]
    pub model: Option<PathBuf>,

    /// How freely to choose: 0 takes the likeliest token always
    #[arg(long, value_name = "X", default_value_t = 0.8)]
    pub temperature: f64,

    /// Draw from so many of the likeliest tokens only [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub top_k: Option<u32>,

    /// Draw from the fewest of the likeliest tokens only that have this share together
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub top_p: f64,

    /// Seed of the choice
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Memory for the whole process [default: what the run had]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// Threads to compute with [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// `generate`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct GenerateArgs {
    /// The model.
    #[command(flatten)]
    pub sample: SampleArgs,

    /// The text to continue
    #[arg(long, value_name = "TEXT")]
    pub prompt: String,

    /// Tokens to add, unless the model ends the text before
    #[arg(long, alias = "max-tokens", value_name = "N", default_value_t = 100)]
    pub tokens: usize,
}

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

/// A model that is ready to be sampled from.
pub(crate) struct Loaded {
    /// The model.
    pub model: Box<dyn CausalLm>,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Where the tokenizer is, if it is a file.
    pub tokenizer_path: Option<PathBuf>,
    /// The template of the run, if it was told to take one.
    pub template: Option<String>,
    /// How to draw from it.
    pub sampling: Sampling,
    /// The tokens that end a text.
    pub ends: Vec<u32>,
    /// What the engine may take.
    _engine: Engine,
}

/// Continues a text.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn generate(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let loaded = load(&args.sample)?;
    let prompt = begun(&loaded.tokenizer, &args.prompt)?;
    if args.prompt.is_empty() {
        return Err(Failure::usage("--prompt must have at least one character"));
    }
    let mut tokens = sample(
        &*loaded.model,
        &prompt,
        args.tokens,
        loaded.sampling,
        |token| stop_at(&loaded.ends, token),
    )?;
    tokens.pop_if(|last| loaded.ends.contains(last));
    output::result(&loaded.tokenizer.decode(&tokens)?);
    Ok(ExitCode::SUCCESS)
}

/// A text to go on from, as texts begin that a model learnt from.
pub(crate) fn begun(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, Failure> {
    let mut tokens = tokenizer.before_texts()?;
    tokens.extend(tokenizer.encode(text)?);
    Ok(tokens)
}

/// Whether a token ends what is said.
pub(crate) fn stop_at(ends: &[u32], token: u32) -> ControlFlow<()> {
    if ends.contains(&token) {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// Reads a model, as far as its folder or its run says where it is.
///
/// # Errors
/// [`Failure`] for flags that are not possible, and a model that cannot be read or has no room.
pub(crate) fn load(args: &SampleArgs) -> Result<Loaded, Failure> {
    let files = DiskFiles;
    check(args)?;
    let place = place(&files, args)?;
    let blueprint = Blueprint::read(&files, &place.config)?;
    let config = blueprint.text()?;
    let tokenizer = tokenizer(&files, &place, config)?;
    let engine = engine(args, &place, config)?;
    let model = match place.quantize {
        Some(quantize) => config.build_held(&engine, quantize.format())?,
        None => config.build(&engine)?,
    };
    base::read(&files, &place.weights, &*model)?;
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
    let folder = place.tokenizer.as_deref().and_then(Path::parent);
    let template = args.dir.as_deref().map(|dir| -> Result<_, Failure> {
        let path = RunDir::template_of(dir);
        Ok(files.metadata(&path)?.map(|_| path.display().to_string()))
    });
    let ends = folder.map(|folder| highwater_text::ends_of_texts(&files, folder, &tokenizer));
    Ok(Loaded {
        model,
        ends: ends.transpose()?.unwrap_or_default(),
        tokenizer,
        sampling: Sampling {
            temperature: args.temperature,
            top_k: args.top_k.map(|top_k| top_k as usize),
            top_p: args.top_p,
            seed: args.seed,
            context: place.context,
        },
        tokenizer_path: place.tokenizer,
        template: template.transpose()?.flatten(),
        _engine: engine,
    })
}

fn check(args: &SampleArgs) -> Result<(), Failure> {
    if !(args.temperature.is_finite() && args.temperature >= 0.0) {
        return Err(Failure::usage("--temperature must be a number from 0 up"));
    }
    if !(args.top_p > 0.0 && args.top_p <= 1.0) {
        return Err(Failure::usage("--top-p must be above 0 and at most 1"));
    }
    let threads = args.threads.is_none_or(|n| (1..=1024).contains(&n));
    let message = "--threads must be 1 to 1024";
    threads.then_some(()).ok_or_else(|| Failure::usage(message))
}

fn engine(args: &SampleArgs, place: &Place, config: &dyn Architecture) -> Result<Engine, Failure> {
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
    Ok(builder.build()?)
}

/// A run's final model, or its newest saved state, or a model folder.
fn place(files: &dyn Files, args: &SampleArgs) -> Result<Place, Failure> {
    if let Some(folder) = &args.model {
        state::check_weights(files, folder)?;
        return Place::folder(files, folder, None);
    }
    let nothing = || {
        Failure::usage("there is no model named").hint(
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
    if state::has_weights(files, &folder)? {
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
