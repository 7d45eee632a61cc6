//! `train`: resolve the settings, see whether they fit, then run.

mod resume;

pub use resume::resume;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use highwater_memory::saved::write_atomic;
use highwater_memory::spill;
use highwater_memory::{DiskFiles, Files};
use highwater_models::DataError;
use highwater_models::vision::{ImageClassifier, load_backbone, load_pretrained};

use crate::args::TrainArgs;
use crate::config::{ModelSource, RunConfig};
use crate::data::RunData;
use crate::dry::{Assumptions, Planner};
use crate::error::{Code, Failure};
use crate::log::Log;
use crate::origin::Origin;
use crate::phases::Phases;
use crate::pictures::Classifier;
use crate::provenance::source_digest;
use crate::resolve::{self, Resolved};
use crate::run_dir::RunDir;
use crate::samples::Samples;
use crate::session::Session;
use crate::task::{Blueprint, Model};
use crate::tensorboard::Events;
use crate::training::Run;
use crate::{base, held_out, hub, init, machine, output, plan, profile, report, state, tokenise};

/// Trains a model.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn train(args: &TrainArgs) -> Result<ExitCode, Failure> {
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    let Resolved {
        mut config,
        model,
        notes,
    } = resolve::train(&*files, args)?;
    check_source(&*files, &config)?;
    if args.dry_run {
        for note in &notes {
            output::news(note);
        }
        return dry_run(&files, args, config, &model);
    }
    report::keep_to_bound(&mut config, &model)?;
    machine::find_rates(&*files, &mut config.machine)?;
    let limits = limits(args.profile, &config);
    check_data(&*files, &config)?;
    model.check_data(&*files, &config)?;
    let (forecast, reserve) = fitting(&*files, &mut config, &model, false)?;
    let dir = make_dir(&*files, args, &config)?;
    let (session, data, loaded) = match begin(&files, &dir, &mut config, (&model, reserve)) {
        Ok(begun) => begun,
        Err(failure) => {
            dir.abandon(&*files);
            return Err(failure);
        }
    };
    let mut phases = Phases::default();
    phases.end("load", &session);
    let mut log = Log::open(&*files, &dir.log(), 0)?;
    for note in notes.iter().chain(&loaded) {
        log.say(note)?;
    }
    log.say(&report::portions(&config, &data))?;
    if let RunData::Pictures(images) = &data
        && let Some(bad) = images.left_out()
    {
        log.note(&bad)?;
    }
    if let Some(adapters) = report::adapters(&config, &session) {
        log.say(&adapters)?;
    }
    let events = events(&*files, &dir, (&config, 0))?;
    let samples = samples(&files, &dir, &session)?;
    log.say(&report::announce(&forecast, config.training.steps))?;
    Run {
        files: &files,
        dir: &dir,
        log,
        session,
        data,
        counters: None,
        events,
        samples,
        best: None,
        phases,
        profile: args.profile.then_some(limits),
        json: args.json,
    }
    .run()
}

/// That the data is there.
///
/// # Errors
/// [`Failure`] where it is not.
pub(crate) fn check_data(files: &dyn Files, config: &RunConfig) -> Result<(), Failure> {
    match &config.data.path {
        Some(path) if files.metadata(path)?.is_none() => {
            Err(DataError::Missing { path: path.clone() }.into())
        }
        _ => Ok(()),
    }
}

/// That there are weights to begin with, where a run goes on from some.
///
/// # Errors
/// [`Failure`] where there are none.
pub(crate) fn check_source(files: &dyn Files, config: &RunConfig) -> Result<(), Failure> {
    match &config.model.source {
        ModelSource::Folder(file) if files.metadata(file)?.is_some_and(|found| !found.is_dir) => {
            let message = format!(
                "{}: a model's configuration, without its weights",
                file.display()
            );
            Err(Failure::usage(message).hint(
                "name the model's folder, or train one from scratch: --init-from FILE; `highwater plan` says what it \
                 would take",
            ))
        }
        ModelSource::Folder(folder) => {
            hub::weights(folder)?;
            state::check_weights(files, folder)
        }
        source if config.model.lora.is_some() => {
            let message =
                format!("--lora fine-tunes a trained model, and {source} has no trained weights");
            Err(Failure::usage(message)
                .id("HW1041")
                .hint("name a model folder: --model FOLDER"))
        }
        source if config.training.preference.is_some() => {
            let message = format!(
                "--preference fine-tunes a trained model, and {source} has no trained weights"
            );
            Err(Failure::usage(message).hint("name a model folder: --model FOLDER"))
        }
        ModelSource::Preset(_) | ModelSource::Config(_) => Ok(()),
    }
}

/// What this machine does at most, if a profile is asked for.
fn limits(profile: bool, config: &RunConfig) -> Option<profile::Machine> {
    let machine = &config.machine;
    let measure = || profile::Machine::measure(machine.threads, machine.memory.0);
    profile.then(measure).flatten()
}

/// Readies all that a new run needs, then has its folder hold the run: nothing changes there until it is
/// known that the run can start.
fn begin(
    files: &Arc<dyn Files>,
    dir: &RunDir,
    config: &mut RunConfig,
    (model, reserve): (&Blueprint, u64),
) -> Result<(Session, RunData, Vec<String>), Failure> {
    let (json, spool) = (model.to_json(), dir.tokens_draft());
    let made = tokenise::spool(&**files, config, model, &spool)?;
    let mut notes: Vec<_> = held_out::describe(&**files, config)?.into_iter().collect();
    notes.extend(made.into_iter().flatten());
    if let Some(epochs) = config.training.epochs.take() {
        let data = RunData::open(files, config, model, &spool)?;
        config.training.steps = data.steps(config, epochs.count);
        if !epochs.warmup_is_said {
            config.optimizer.warmup = config.training.steps / 20;
        }
        config.validate(model)?;
    }
    let data = RunData::open(files, config, model, &spool)?;
    let (steps, held_out) = (config.training.steps, data.counts()[1]);
    let epochs = data.epochs(config, steps);
    if config.data.records.is_some() && held_out > 0 && epochs > 1.5 {
        // After each epoch, so that the best of them can be kept.
        let epoch = (steps as f64 / epochs).round().max(1.0) as u64;
        config.output.eval_every.get_or_insert(epoch);
    }
    let session = Session::new(config, model, Some(reserve))?;
    data.batches(config)?;
    held_out::check_count(config, data.counts()[1])?;
    notes.extend(load_weights(&**files, config, &session)?);
    state::check_space(&**files, dir, &session, config.training.steps)?;
    let source = source_digest(&**files, config)?;
    let origin = Origin::of(&**files, config, &json, (&data, &spool), false, source)?;
    config.origin = Some(origin);
    dir.begin(&**files)?;
    write_atomic(&**files, &dir.model(), json.as_bytes())?;
    if let Some(named) = config.chat_template() {
        let source = crate::records::template_source(&**files, named)?;
        dir.own(&**files, [dir.template()])?;
        write_atomic(&**files, &dir.template(), source.as_bytes())?;
    }
    // The settings come last: with them the folder holds a run.
    config.write(&**files, &dir.config())?;
    Ok((session, data, notes))
}

/// Says what the settings are and what they come to.
fn dry_run(
    files: &Arc<dyn Files>,
    args: &TrainArgs,
    mut config: RunConfig,
    model: &Blueprint,
) -> Result<ExitCode, Failure> {
    machine::find_rates(&**files, &mut config.machine)?;
    report::warn_of_budget(&config);
    let assumptions = Assumptions::measure(&**files, &config, model)?;
    let report = plan::Report::new(&config, model, &assumptions, Duration::ZERO)?;
    report::keep_to_planned(&mut config, &report.forecast);
    RunData::check(files, &config, model)?;
    if !args.json {
        let text = config.to_toml(Path::new("config.toml"))?;
        let text = init::text_with_epochs(text, &config)?;
        output::result(text.trim_end());
    }
    plan::show(&report, false, args.json)
}

/// Begins a file for TensorBoard, if one is asked for, behind so many steps.
fn events(
    files: &dyn Files,
    dir: &RunDir,
    (config, done): (&RunConfig, u64),
) -> Result<Option<Events>, Failure> {
    if !config.output.tensorboard {
        return Ok(None);
    }
    let (events, path) = Events::begin(files, &dir.tensorboard(), done)?;
    dir.own(files, [path])?;
    Ok(Some(events))
}

/// What the model is shown to go on from, of a run of texts.
fn samples(
    files: &Arc<dyn Files>,
    dir: &RunDir,
    session: &Session,
) -> Result<Option<Samples>, Failure> {
    match &session.model {
        Model::Text(model) => Samples::open(files, session.config(), &dir.template(), &**model),
        Model::Images(..) => Ok(None),
    }
}

/// Plans before anything is allocated: what the run will take, if that fits, and the reserve that this
/// counts on. Where only less than the budget does, it is lowered.
fn fitting(
    files: &dyn Files,
    config: &mut RunConfig,
    model: &Blueprint,
    has_tokens: bool,
) -> Result<(highwater::Forecast, u64), Failure> {
    if let Some(disk) = &config.machine.disk {
        // A full disk is told before anything is planned; its space is given back at once.
        drop(spill::open(&disk.folder, disk.bytes.0, 0)?);
    }
    let mut assumptions = Assumptions::measure(files, config, model)?;
    if has_tokens {
        assumptions.tokenise_bytes = 0;
    }
    let mut planner = Planner::new(config, model, &assumptions);
    let mut forecast = planner.forecast()?;
    if !forecast.fits {
        forecast = planner.within()?;
    }
    // What planning took is not there while the run plans and computes.
    drop(planner);
    if !forecast.fits {
        return Err(report::refused(&forecast, config).hints(model.large_data(files, config)?));
    }
    report::keep_to_planned(config, &forecast);
    highwater_memory::heap::release_unused();
    let reserve = assumptions.reserve(config, model);
    Ok((forecast, reserve))
}

/// Loads the weights of a model folder; a preset keeps the ones that were drawn. Says which of a classifier's were
/// not loaded, as their last layer is for other classes, and which tensors the model has no place for.
fn load_weights(
    files: &dyn Files,
    config: &RunConfig,
    session: &Session,
) -> Result<Option<String>, Failure> {
    let ModelSource::Folder(folder) = &config.model.source else {
        return Ok(None);
    };
    match &session.model {
        Model::Text(model) => {
            let note = base::read(files, folder, &**model)?;
            if let Some(before) = &session.before {
                base::read(files, folder, &**before)?;
            }
            Ok(note)
        }
        Model::Images(model, classifier) => {
            let left = load_classifier(files, folder, (&**model, classifier))?;
            let note = || {
                format!(
                    "note: for other classes, and drawn anew: {}",
                    left.join(", ")
                )
            };
            Ok((!left.is_empty()).then(note))
        }
    }
}

/// Loads the weights of a classifier's folder. Where the folder's classes are not the run's, the last layer is left as
/// it was drawn. Answers the names of what was not loaded.
fn load_classifier(
    files: &dyn Files,
    folder: &Path,
    (model, classifier): (&dyn ImageClassifier, &Classifier),
) -> Result<Vec<String>, Failure> {
    let path = folder.join(state::MODEL);
    let own = Classifier::read(files, &folder.join("config.json"))?;
    let own = own.map_or_else(Default::default, |own| own.classes);
    if !own.is_empty() && own != classifier.classes {
        return load_backbone(model, path).map_err(Failure::of_weights);
    }
    let left = load_pretrained(model, &path).map_err(Failure::of_weights)?;
    if let Some(name) = left.first().filter(|_| !own.is_empty()) {
        let message = format!(
            "{}: `{name}` is missing or not for the {} classes of config.json",
            path.display(),
            own.len()
        );
        let hint = "correct id2label, or leave it out: the last layer is drawn anew then";
        return Err(Failure::new(Code::Files, message).id("HW1013").hint(hint));
    }
    Ok(left)
}

/// The folder that was named, or one of the model's name under `runs`.
fn make_dir(files: &dyn Files, args: &TrainArgs, config: &RunConfig) -> Result<RunDir, Failure> {
    let inputs = inputs(args, config);
    if let Some(path) = &args.out {
        return Ok(RunDir::create(files, path, args.force, &inputs)?);
    }
    let path = PathBuf::from("runs").join(run_name(&config.model.source));
    if args.force {
        return Ok(RunDir::create(files, &path, true, &inputs)?);
    }
    Ok(RunDir::create_numbered(files, &path)?)
}

/// The files and folders that a run reads.
fn inputs(args: &TrainArgs, config: &RunConfig) -> Vec<PathBuf> {
    let mut inputs = Vec::new();
    inputs.extend(args.run.config.clone());
    inputs.extend(config.data.path.clone());
    inputs.extend(config.data.eval_data.clone());
    inputs.extend(config.model.tokenizer.clone());
    inputs.extend(config.chat_template().map(PathBuf::from));
    if let ModelSource::Folder(path) | ModelSource::Config(path) = &config.model.source {
        inputs.push(path.clone());
    }
    inputs
}

/// What a run is called when nobody names its folder.
fn run_name(source: &ModelSource) -> String {
    let named = |name: Option<&OsStr>| {
        name.map_or_else(
            || "model".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        )
    };
    match source {
        ModelSource::Preset(name) => name.clone(),
        ModelSource::Folder(path) => named(path.file_name()),
        // Most are called `config.json`: what the folder of one is called says more.
        ModelSource::Config(path) if path.ends_with("config.json") => {
            named(path.parent().and_then(Path::file_name))
        }
        ModelSource::Config(path) => named(path.file_stem()),
    }
}
