//! `eval`: what a model comes to over all of some data, inside a budget that is planned before anything is loaded.

mod images;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use highwater::{Builder, Engine, no_grad, skip_init};
use highwater_memory::process::Usage;
use highwater_memory::{Bytes, DiskFiles, Files};
use highwater_models::data::Reads;
use highwater_models::{DataError, Order, TokenWidth};
use serde_json::json;

use crate::args::table::by_name;
use crate::args::{Flags, Format, Settings};
use crate::config::{Precision, RecordsConfig, RunConfig, Task, TrainingConfig};
use crate::data::{ImageData, tokenize};
use crate::error::{Code, Failure};
use crate::folder::{RunDir, Which};
use crate::machine;
use crate::model::{Batch, Blueprint, Model, Place, base};
use crate::planning::{Assumptions, budget, plan_call, refusal};
use crate::session::engine_and_model;
use crate::settings::resolve::{self, Resolved};
use crate::terminal::figures::{self, per_second};
use crate::terminal::output;
use text::Text;

/// Sequences of a model folder are so long at most when nobody says.
const SEQ: usize = 1024;
/// A word on how far it is comes no more often than this.
const WORD_EVERY: Duration = Duration::from_secs(5);

/// `eval`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct EvalArgs {
    /// Folder of a run
    #[arg(value_name = "RUN")]
    pub dir: Option<PathBuf>,

    /// A Hugging Face model folder, instead of a run
    #[arg(long, value_name = "FOLDER", conflicts_with = "dir")]
    pub model: Option<PathBuf>,

    /// Which model of a run.
    #[command(flatten)]
    pub which: Which,

    /// Dataset: a file or folder, in the formats of train --data. For images, val/ is read if the folder has one
    #[arg(long, value_name = "PATH")]
    pub data: PathBuf,

    /// The tokenizer.json for text [default: that of the run or of the model's folder]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,

    /// Type of the tokens in a .bin file without a header [default: the run's, otherwise as for train]
    #[arg(long, value_name = "TYPE")]
    #[arg(value_parser = by_name::<TokenWidth>(&["u16", "u32"]))]
    pub token_dtype: Option<TokenWidth>,

    /// Memory budget of the whole process [default: the run's, otherwise as for train]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// Sequences or images per batch. It changes the loss only by rounding [default: the run's, otherwise as for
    /// train]
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,

    /// Tokens per sequence [default: the run's, otherwise 1024, or the model's maximum if that is less]
    #[arg(long, value_name = "N")]
    pub seq: Option<usize>,

    /// Precision of activations and matrix products, as with torch.autocast [default: the run's, otherwise f32]
    #[arg(long, value_name = "TYPE")]
    pub precision: Option<Precision>,

    /// Threads to compute with [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,

    /// Skip images that cannot be read, and list them, instead of stopping
    #[arg(long)]
    pub skip_bad: bool,

    /// How examples are read.
    #[command(flatten)]
    pub records: Flags<Format>,
}

/// What there is to look at.
enum Data {
    Text(Text),
    Images(ImageData),
}

impl Data {
    /// Does something with each batch, the length of its sequences, and the share of the data that is done then.
    fn each(
        &self,
        config: &RunConfig,
        look: &mut impl FnMut(&Batch, usize, f64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::Text(text) => text.each(config, look),
            Self::Images(images) => images::each(images, config, look),
        }
    }
}

/// What a model came to.
#[derive(Debug, Default)]
struct Found {
    /// The losses of all tokens or images, together.
    loss: f64,
    /// How many of them there are.
    units: u64,
    /// How many images were told rightly.
    right: Option<f64>,
}

impl Found {
    fn mean(&self, sum: f64) -> f64 {
        sum / self.units.max(1) as f64
    }

    /// Adds the means of a batch; of nothing there are none.
    fn add(&mut self, units: usize, loss: f32, right: Option<f32>) {
        let weight = units as f64;
        self.units += units as u64;
        self.loss += f64::from(loss) * weight;
        if let Some(right) = right {
            // A share of so many images is one of whole images.
            *self.right.get_or_insert(0.0) += (f64::from(right) * weight).round();
        }
    }
}

/// Says what a model comes to over some data.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    if files.metadata(&args.data)?.is_none() {
        let path = args.data.clone();
        return Err(DataError::Missing { path }.into());
    }
    let run = match &args.dir {
        Some(dir) => RunConfig::of_folder(&*files, dir)?,
        None => None,
    };
    let place = place(&*files, args, run.as_ref())?;
    let Resolved {
        mut config, model, ..
    } = settings(&*files, args, (&place, run.as_ref()))?;
    // Its weights may wait in their files.
    config.machine.memory = budget::bounded(config.machine.memory, true);
    config.validate(&model)?;
    machine::find_rates(&*files, &mut config.machine)?;
    let data = match &model {
        Blueprint::Text(_) => None,
        Blueprint::Images(classifier) => {
            Some(images::open(&files, &config, (classifier, &place.shape))?)
        }
    };
    let reserve = fitting(&*files, &config, (&model, &place))?;
    let data = match data {
        Some(images) => Data::Images(images),
        None => Data::Text(Text::open(&files, &config, &model)?),
    };
    let builder = Engine::builder().memory(config.machine.memory.0).prices(0);
    let (engine, model) = frozen(builder.reserve(reserve), &config, &model)?;
    load(&*files, &place, &model)?;
    let started = Instant::now();
    let (mut found, mut told) = (Found::default(), Instant::now());
    let looked = data.each(&config, &mut |batch, seq, share| {
        let training = TrainingConfig {
            seq,
            ..config.training.clone()
        };
        if batch.units() > 0 {
            let (loss, right) = no_grad(|| model.loss(&engine, batch, &training, None))?;
            let right = right.map(|right| right.item()).transpose()?;
            found.add(batch.units(), finite(loss.item()?)?, right);
        }
        if told.elapsed() >= WORD_EVERY {
            told = Instant::now();
            let (percent, mean) = (100.0 * share, found.mean(found.loss));
            output::news(&format!("{percent:.0}% of the data: loss {mean:.4}"));
        }
        Ok(())
    });
    looked.map_err(|failure| base::explain(&*files, &place.paths(), failure))?;
    if found.units == 0 {
        let message = format!(
            "{}: there is nothing to compute a loss of",
            args.data.display()
        );
        let hint = "with --skip-bad, all of it may have been skipped; examples may have no tokens that loss is computed on";
        return Err(Failure::new(Code::Files, message).hint(hint));
    }
    tell(args, &config, &found, started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

/// A loss that is a number.
fn finite(loss: f32) -> Result<f32, Failure> {
    if loss.is_finite() {
        return Ok(loss);
    }
    let message = format!("the loss is not finite: a batch has a loss of {loss}");
    Err(Failure::new(Code::NonFinite, message).hint(
        "with --precision bf16 or fp16, try f32; with f32, the weights may be damaged: download them again",
    ))
}

/// Says what was found.
fn tell(args: &EvalArgs, config: &RunConfig, found: &Found, seconds: f64) {
    let peak = Usage::read().map_or(0, |usage| usage.peak);
    let (units, memory, unit) = (found.units, config.machine.memory, config.task.unit());
    let (loss, rate) = (found.mean(found.loss), units as f64 / seconds);
    let accuracy = found.right.map(|right| found.mean(right));
    if args.json {
        let mut summary = json!({
            "loss": loss,
            unit: units,
            "batch": config.training.batch,
            "seconds": seconds,
            (format!("{unit}_per_second")): rate,
            "budget_bytes": memory.0,
            "peak_rss_bytes": peak,
        });
        if let Some(accuracy) = accuracy {
            summary["accuracy"] = accuracy.into();
        } else {
            summary["perplexity"] = loss.exp().into();
            summary["seq"] = config.training.seq.into();
        }
        return output::result(&summary.to_string());
    }
    let (seq, rate, kept) = (
        config.training.seq,
        per_second(rate),
        budget::kept(memory, peak),
    );
    let told = if let Some(share) = accuracy {
        format!("accuracy {:.1}% (of {units} images)", 100.0 * share)
    } else {
        let perplexity = figures::perplexity(loss.exp());
        format!("perplexity {perplexity} (of {units} tokens, in sequences of {seq})")
    };
    output::result(&format!("loss {loss:.4}, {told}\n{rate} {unit}/s; {kept}"));
}

/// The settings that it is looked at by: those of the run, with what flags say.
fn settings(
    files: &dyn Files,
    args: &EvalArgs,
    (place, run): (&Place, Option<&RunConfig>),
) -> Result<Resolved, Failure> {
    // A model is named by its folder, the shape of a run by its file.
    let source = match place.shape.parent() {
        Some(folder) if place.shape.ends_with("config.json") => folder,
        _ => &place.shape,
    };
    let source = source.to_str();
    let unnamed = || Failure::usage("the name of the model's folder is not valid UTF-8");
    let mut flags = Settings {
        model: Some(source.ok_or_else(unnamed)?.to_owned()),
        data: Some(args.data.clone()),
        tokenizer: args.tokenizer.clone(),
        token_dtype: args.token_dtype,
        memory: args.memory,
        batch: args.batch,
        seq: args.seq,
        precision: args.precision,
        threads: args.threads,
        held_out: Some(0.0),
        skip_bad: args.skip_bad.then_some(true),
        order: Some(Order::Sequential),
        ..args.records.0.clone()
    };
    if let Some(run) = run {
        flags.batch.get_or_insert(run.training.batch);
        if run.task.is_text() {
            flags.seq.get_or_insert(run.training.seq);
            if flags.tokenizer.is_none() {
                flags.tokenizer = place.tokenizer(files, Some(run))?;
            }
        }
        flags.token_dtype = flags.token_dtype.or(run.data.token_dtype);
        flags.precision = flags.precision.or(Some(run.training.precision));
        flags.memory = flags.memory.or(Some(run.machine.memory));
        let records = run.data.records.as_ref();
        if let Some(records) = records.filter(|_| args.reads_records(files)) {
            // The run's own copy: what was named may be another file by now.
            let own = args.dir.as_deref().map(RunDir::template_of);
            let own = own.filter(|path| files.metadata(path).is_ok_and(|found| found.is_some()));
            of_run_records(&mut flags, (records, own.as_deref()));
        }
    }
    if let (None, Blueprint::Text(model)) = (flags.seq, Blueprint::read(files, &place.shape)?) {
        flags.seq = Some(model.max_length().min(SEQ));
    }
    let mut resolved = resolve::run(files, &flags)?;
    resolved.config.data.reads = Reads::Evaluation;
    if let Some(run) = run {
        // What weights are held in, and where they wait if the run needed that.
        let config = &mut resolved.config;
        config.model.lora.clone_from(&run.model.lora);
        config.optimizer.master = run.optimizer.master;
        if args.memory.is_none() {
            config.machine.device_memory = run.machine.device_memory;
            config.machine.host_memory = run.machine.host_memory;
            config.machine.disk.clone_from(&run.machine.disk);
        }
        config.validate(&resolved.model)?;
    }
    Ok(resolved)
}

/// Has records read as a run does, where no flag says otherwise; by its own copy of a template, if there is one.
fn of_run_records(flags: &mut Settings, (run, own): (&RecordsConfig, Option<&Path>)) {
    flags.loss_on.get_or_insert(run.loss_on);
    flags.no_packing.get_or_insert(!run.packing);
    let own = own.and_then(Path::to_str).map(str::to_owned);
    let named = || run.chat_template.is_some().then_some(own)?;
    flags.chat_template = flags.chat_template.take().or_else(named);
    if flags.chat_template.is_none() {
        flags.chat_template.clone_from(&run.chat_template);
    }
    let map = || run.map.clone().into_iter().collect();
    flags.map.get_or_insert_with(map);
}

impl EvalArgs {
    fn reads_records(&self, files: &dyn Files) -> bool {
        crate::data::records::has_records(files, &self.data).unwrap_or(false)
    }
}

/// A model that nothing trains, and whose values are to be loaded: where memory is short they wait in their files.
fn frozen(
    builder: Builder,
    config: &RunConfig,
    model: &Blueprint,
) -> Result<(Engine, Model), Failure> {
    let (engine, model) = skip_init(|| engine_and_model(builder.files(), config, model))?;
    model.module().requires_grad_(false);
    model.module().eval();
    Ok((engine, model))
}

/// Plans a batch before anything is loaded: the reserve that the plan counts on.
fn fitting(
    files: &dyn Files,
    config: &RunConfig,
    (model, place): (&Blueprint, &Place),
) -> Result<u64, Failure> {
    let budget = config.machine.memory.0;
    let batch = model.blank(config, config.training.batch);
    let survey = model.survey(files, config)?;
    let [decoding, listing] = survey.map_or([0; 2], |survey| {
        [survey.decoding_bytes(), survey.listing_bytes]
    });
    let beside = model.loader_bytes(&config.training, decoding) + listing;
    let (mut forecast, reserve) = plan_call(
        (|| Engine::builder().memory(budget), beside),
        |builder| frozen(builder, config, model),
        |engine, built| {
            if let Model::Text(text) = built {
                base::foresee(&place.weights, &**text)?;
            }
            let (loss, _) = no_grad(|| built.loss(engine, &batch, &config.training, None))?;
            loss.item()?;
            Ok(())
        },
    )?;
    let assumptions = Assumptions {
        reserve_bytes: reserve,
        decoding_bytes: 0,
        prices: 0,
        tokenize_bytes: tokenize::needed_bytes(files, config)?,
    };
    assumptions.tokenize(&mut forecast);
    if !forecast.fits {
        let smaller = match config.task {
            Task::TextGeneration => refusal::smaller(config.task),
            // Their size is the model's.
            Task::ImageClassification => "a smaller --batch",
        };
        let machine = (&config.machine, true);
        return Err(refusal::does_not_fit(&forecast, machine, smaller));
    }
    Ok(reserve)
}

/// Reads the weights.
fn load(files: &dyn Files, place: &Place, model: &Model) -> Result<(), Failure> {
    let model = match model {
        Model::Text(model) => model,
        Model::Images(model, _) => return images::load(&**model, &place.weights),
    };
    if let Some(note) = base::read(files, &place.weights, &**model)? {
        output::news(&note);
    }
    if let Some((_, trained)) = &place.adapters {
        trained.read(files, &**model)?;
    }
    Ok(())
}

/// A run's final model or its newest saved state, or a model folder.
fn place(files: &dyn Files, args: &EvalArgs, run: Option<&RunConfig>) -> Result<Place, Failure> {
    let Some(folder) = args.dir.as_ref().or(args.model.as_ref()) else {
        let hint = "give the folder of a run, such as runs/gpt2-nano, or --model FOLDER";
        return Err(Failure::usage("eval needs a model").hint(hint));
    };
    if files.metadata(folder)?.is_none() {
        let message = format!("{}: there is no such folder", folder.display());
        return Err(Failure::usage(message));
    }
    if args.dir.is_some() {
        return Place::find(files, (folder, args.which), run);
    }
    args.which.check_none()?;
    Place::of_folder(files, folder)
}
