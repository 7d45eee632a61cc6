//! A trained model that is ready to be sampled from: found, fitted into a budget, and read.

use std::path::{Path, PathBuf};

use highwater::{Builder, Engine, Error, Module, no_grad, skip_init};
use highwater_memory::{Bytes, DiskFiles, Files, ProcessMemory};
use highwater_models::{Architecture, CausalLm, Sampling, Tokenizer, window_length};

use super::generation_config::GenerationConfig;
use super::sample_args::SampleArgs;
use crate::config::{DiskConfig, MachineConfig, Policy, RunConfig};
use crate::data::tokenizer::{Limit, read_within};
use crate::error::{Code, Failure};
use crate::folder::RunDir;
use crate::machine::processor;
use crate::model::{Blueprint, Place, base};
use crate::planning::{budget, plan_call, refusal};
use crate::terminal::output;

/// What a model gets that no run's settings say anything about, beside its weights.
const DEFAULT_ROOM: u64 = 1 << 30;

/// A model, and what its run says of how it is to be used.
struct Found {
    place: Place,
    tokenizer: Option<PathBuf>,
    memory: Option<Bytes>,
    disk: Option<DiskConfig>,
    /// The most tokens that it was trained to look back on.
    context: usize,
}

impl Found {
    fn new(files: &dyn Files, place: Place, run: Option<RunConfig>) -> Result<Self, Failure> {
        Ok(Self {
            tokenizer: place.tokenizer(files, run.as_ref())?,
            place,
            memory: run.as_ref().map(|run| run.machine.memory),
            context: run.as_ref().map_or(usize::MAX, RunConfig::context),
            disk: run.and_then(|run| run.machine.disk),
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
    /// The run's own chat template, where `train --chat-template` set one.
    pub template: Option<String>,
    /// How to draw from it.
    pub sampling: Sampling,
    /// The tokens that end a text.
    pub ends: Vec<u32>,
    /// The texts that end one.
    pub stop: Vec<String>,
    /// How many tokens it looks back on at most.
    pub window: usize,
    /// The files and folders that its numbers are from.
    weights: Vec<PathBuf>,
    /// What the engine may take.
    _engine: Engine,
}

impl Loaded {
    /// Why nothing more is drawn.
    pub(crate) fn failed(&self, error: Error) -> Failure {
        match error {
            Error::NonFinite { what, node } => {
                let message =
                    format!("{what} is NaN or infinite ({node}): the next token cannot be chosen");
                let failure = Failure::new(Code::NonFinite, message)
                    .hint("the weights may be damaged: download or train them again");
                base::explain(&DiskFiles, &self.weights, failure)
            }
            error => error.into(),
        }
    }
}

/// Reads a model, as far as its folder or its run says where it is, into a budget in which it can be asked what
/// follows `longest` tokens.
///
/// # Errors
/// [`Failure`] for flags that are not possible, and a model that cannot be read or has no room.
pub(crate) fn load(
    args: &SampleArgs,
    longest: impl FnOnce(&Tokenizer) -> Result<usize, Failure>,
) -> Result<Loaded, Failure> {
    let files = DiskFiles;
    args.check()?;
    let found = found(&files, args)?;
    let place = &found.place;
    let blueprint = Blueprint::read(&files, &place.shape)?;
    let config = blueprint.text()?;
    let machine = machine(args, &found, config);
    let tokenizer = tokenizer(&files, &found, config, machine.memory)?;
    let most = config.max_length().min(found.context);
    let longest = window_length(longest(&tokenizer)?.min(most), config.max_length());
    let reserve = fitting(place, config, &machine, longest)?;
    let (engine, model) = frozen(builder(&machine).reserve(reserve), place, config)?;
    if let Some(note) = base::read(&files, &place.weights, &*model)? {
        output::news(&note);
    }
    if let Some((_, trained)) = &place.adapters {
        trained.load(&files, &*model)?;
        model.requires_grad_(false);
    }
    let beside = place.shape.parent().unwrap_or(Path::new(""));
    let stated = GenerationConfig::read(&files, beside)?;
    if !stated.unread.is_empty() {
        output::news(&format!(
            "note: ignored settings of the model's generation_config.json: {}",
            stated.unread.join(", ")
        ));
    }
    let sampling = args.sampling(&stated);
    let sampling = sampling.map_err(|failure| {
        failure.hint("the value comes from the model's generation_config.json")
    })?;
    let folder = found.tokenizer.as_deref().and_then(Path::parent);
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
            context: found.context,
            ..sampling
        },
        weights: place.paths(),
        window: most,
        stop: if args.stop.is_empty() {
            stated.stop
        } else {
            args.stop.clone()
        },
        tokenizer_path: found.tokenizer,
        template: template.transpose()?.flatten(),
        _engine: engine,
    })
}

/// What the model may use: what flags say, otherwise what its run had, otherwise what it is likely to need; never
/// more than the process may have.
fn machine(args: &SampleArgs, found: &Found, config: &dyn Architecture) -> MachineConfig {
    let weights = 4 * config.parameter_count();
    let stated = args.memory.or(found.memory);
    let likely = || {
        let likely = weights + DEFAULT_ROOM;
        // Where the system does not tell there is nothing to keep to.
        let bound = ProcessMemory::read().map_or(likely, |memory| memory.bound() / 10 * 9);
        Bytes(likely.min(bound))
    };
    let memory = match stated {
        Some(memory) => memory,
        None => likely(),
    };
    let memory = budget::bounded(memory, true);
    // What a run trained from disk need not fit into its memory.
    let is_short = args.memory.is_none() && memory.0 < weights + DEFAULT_ROOM;
    MachineConfig {
        memory,
        policy: Policy::Auto,
        threads: args.threads.unwrap_or_else(processor::cores),
        device_memory: None,
        host_memory: None,
        disk: found.disk.clone().filter(|_| is_short),
        forbid: Vec::new(),
        rates: highwater::Rates::default(),
    }
}

fn builder(machine: &MachineConfig) -> Builder {
    let builder = Engine::builder()
        .memory(machine.memory.0)
        .threads(machine.threads);
    match &machine.disk {
        Some(disk) => builder.disk(&disk.folder, disk.bytes.0),
        None => builder,
    }
}

/// A model that nothing trains, and whose values are to be loaded: where memory is short they wait in their files.
fn frozen(
    builder: Builder,
    place: &Place,
    config: &dyn Architecture,
) -> Result<(Engine, Box<dyn CausalLm>), Failure> {
    let engine = builder.files().build()?;
    let quantize = place.adapters.as_ref().and_then(|(lora, _)| lora.quantize);
    let model = skip_init(|| match quantize {
        Some(quantize) => config.build_held(&engine, quantize.format()),
        None => config.build(&engine),
    })?;
    model.requires_grad_(false);
    Ok((engine, model))
}

/// Plans a text before anything is loaded: the reserve that the plan counts on.
fn fitting(
    place: &Place,
    config: &dyn Architecture,
    machine: &MachineConfig,
    longest: usize,
) -> Result<u64, Failure> {
    let (forecast, reserve) = plan_call(
        (|| builder(machine), 0),
        |builder| frozen(builder, place, config),
        |_, model| {
            if let Some((lora, _)) = &place.adapters {
                lora.adapt(&**model)?;
                model.requires_grad_(false);
            }
            base::foresee(&place.weights, &**model)?;
            model.eval();
            whole_text(&**model, longest)
        },
    )?;
    if !forecast.fits {
        let smaller = "a shorter text";
        return Err(refusal::does_not_fit(&forecast, (machine, true), smaller));
    }
    Ok(reserve)
}

/// Asks what follows a text of so many tokens.
fn whole_text(model: &dyn CausalLm, tokens: usize) -> Result<(), Failure> {
    no_grad(|| {
        let window = model.engine().indices(&vec![0; tokens], [1, tokens])?;
        model.next_logits(&window, tokens - 1)?.to_vec::<f32>()
    })?;
    Ok(())
}

/// A run's final model, or its newest saved state, or a model folder.
fn found(files: &dyn Files, args: &SampleArgs) -> Result<Found, Failure> {
    if let Some(folder) = &args.model {
        args.which.check_none()?;
        return Found::new(files, Place::of_folder(files, folder)?, None);
    }
    let nothing = || {
        Failure::usage("no model was named").hint(
            "give the folder of a run, such as runs/gpt2-nano, or --model FOLDER for a Hugging Face model",
        )
    };
    let dir = args.dir.as_deref().ok_or_else(nothing)?;
    // One that cannot be read says no budget to keep to.
    let run = RunConfig::of_folder(files, dir)?;
    let place = Place::find(files, (dir, args.which), run.as_ref())?;
    Found::new(files, place, run)
}

/// The model's tokenizer; bytes for a model that is small enough to be about them.
fn tokenizer(
    files: &dyn Files,
    found: &Found,
    config: &dyn Architecture,
    memory: Bytes,
) -> Result<Tokenizer, Failure> {
    match &found.tokenizer {
        Some(path) => read_within(files, path, &Limit::Budget(memory)),
        None if config.vocab_size() <= 1024 => Ok(Tokenizer::Bytes),
        None => Err(Failure::usage(format!(
            "{}: there is no tokenizer.json for this model",
            found.place.shape.display()
        ))
        .hint("put the tokenizer.json into the model's folder")),
    }
}
