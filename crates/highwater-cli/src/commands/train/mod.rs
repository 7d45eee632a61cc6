//! `train`: resolve the settings, see whether they fit, then run.

mod resume;

pub use resume::resume;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use highwater_memory::saved::write_atomic;
use highwater_memory::{DiskFiles, Files};

use crate::args::TrainArgs;
use crate::commands::plan::{self, Report};
use crate::config::{ModelSource, Origin, RunConfig};
use crate::data::{RunData, held_out, tokenize};
use crate::error::Failure;
use crate::folder::{RunDir, real};
use crate::machine;
use crate::model::Blueprint;
use crate::planning::{Assumptions, Phases, budget, fitting};
use crate::run::provenance::source_digest;
use crate::run::start::{events, limits, load_weights, samples};
use crate::run::{Log, Run, report, saved_state};
use crate::session::Session;
use crate::settings::epochs;
use crate::settings::inputs::{check_data, check_source};
use crate::settings::resolve::{self, Resolved};
use crate::terminal::output;

/// Trains a model.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn train(args: &TrainArgs) -> Result<ExitCode, Failure> {
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    let (_, resolved) = args.run.resolved(&*files, resolve::train)?;
    let Resolved {
        mut config,
        model,
        notes,
    } = resolved;
    check_source(&*files, &config)?;
    if args.dry_run {
        for note in &notes {
            output::news(note);
        }
        return dry_run(&files, args, config, &model);
    }
    budget::keep_to_bound(&mut config, &model)?;
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
    if let RunData::Images(images) = &data
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

/// Readies all that a new run needs, then has its folder hold the run: nothing changes there until it is
/// known that the run can start.
fn begin(
    files: &Arc<dyn Files>,
    dir: &RunDir,
    config: &mut RunConfig,
    (model, reserve): (&Blueprint, u64),
) -> Result<(Session, RunData, Vec<String>), Failure> {
    let (json, spool) = (model.to_json(), dir.tokens_draft());
    let made = tokenize::spool(&**files, config, model, &spool)?;
    let mut notes: Vec<_> = held_out::describe(&**files, config)?.into_iter().collect();
    let told = notes.clone();
    notes.extend(made.into_iter().flatten());
    // An error about the data, such as too little of it, names the files.
    let open = |config: &RunConfig| {
        RunData::open(files, config, model, &spool).map_err(|failure| failure.hints(told.clone()))
    };
    if let Some(epochs) = config.training.epochs.take() {
        let data = open(config)?;
        config.training.steps = data.steps(config, epochs.count);
        if !epochs.warmup_is_said {
            config.optimizer.warmup = config.training.steps / 20;
        }
        config.validate(model)?;
    }
    let data = open(config)?;
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
    saved_state::check_space(&**files, dir, &session, config.training.steps)?;
    let source = source_digest(&**files, config)?;
    let origin = Origin::of(&**files, config, &json, (&data, &spool), false, source)?;
    config.origin = Some(origin);
    dir.begin(&**files)?;
    write_atomic(&**files, &dir.model(), json.as_bytes())?;
    if let Some(named) = config.chat_template() {
        let source = crate::data::records::template_source(&**files, named)?;
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
    budget::warn_of_budget(&mut config);
    let assumptions = Assumptions::measure(&**files, &config, model)?;
    let report = Report::new(&config, model, &assumptions, Duration::ZERO)?;
    budget::keep_to_planned(&mut config, &report.forecast);
    RunData::check(files, &config, model)?;
    if !args.json {
        let text = config.to_toml(Path::new("config.toml"))?;
        let text = epochs::text_with_epochs(text, &config)?;
        output::result(text.trim_end());
    }
    plan::show(&report, false, args.json)
}

/// The folder that was named, or one of the model's name under `runs`.
fn make_dir(files: &dyn Files, args: &TrainArgs, config: &RunConfig) -> Result<RunDir, Failure> {
    let inputs = inputs(args, config);
    let path = match &args.out {
        Some(path) => path.clone(),
        None => PathBuf::from("runs").join(run_name(&config.model.source)),
    };
    check_outside(files, &path, config)?;
    if args.out.is_some() {
        return Ok(RunDir::create(files, &path, args.force, &inputs)?);
    }
    if args.force {
        return Ok(RunDir::create(files, &path, true, &inputs)?);
    }
    Ok(RunDir::create_numbered(files, &path)?)
}

/// That a run does not lie within a folder of its data: it would be read as data when it resumes.
fn check_outside(files: &dyn Files, out: &Path, config: &RunConfig) -> Result<(), Failure> {
    let out = real(out);
    for data in [&config.data.path, &config.data.eval_data]
        .into_iter()
        .flatten()
    {
        let is_folder = files.metadata(data)?.is_some_and(|found| found.is_dir);
        if is_folder && out.starts_with(real(data)) {
            let message = format!(
                "the run's folder {} is inside its data folder {}: it would be read as data",
                out.display(),
                data.display()
            );
            return Err(Failure::usage(message).hint("name another folder: --out DIR"));
        }
    }
    Ok(())
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
