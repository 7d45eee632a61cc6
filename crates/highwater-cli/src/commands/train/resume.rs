//! `resume`: goes on with a run from what it has saved.

use std::process::ExitCode;
use std::sync::Arc;

use highwater_memory::{Bytes, DiskFiles, Files};

use crate::args::ResumeArgs;
use crate::config::range::require;
use crate::config::{Origin, RunConfig};
use crate::data::{RunData, held_out, tokenize};
use crate::error::Failure;
use crate::folder::{Best, Counters, RunDir};
use crate::machine;
use crate::model::Blueprint;
use crate::planning::{Phases, budget, fitting};
use crate::run::provenance::source_digest;
use crate::run::start::{events, limits, load_weights, samples};
use crate::run::{Log, Run, report, saved_state};
use crate::session::Session;
use crate::settings::resolve::{self, Resolved};
use crate::state_name::state_name;
use crate::terminal::output;

/// Goes on with a run.
///
/// # Errors
/// [`Failure`], with the exit code to end with.
pub fn resume(args: &ResumeArgs) -> Result<ExitCode, Failure> {
    let files: Arc<dyn Files> = Arc::new(DiskFiles);
    let dir = RunDir::open(&*files, &args.dir)?;
    let Resolved {
        mut config,
        model,
        notes,
    } = resolve::resume(&*files, &dir, args)?;
    budget::keep_to_bound(&mut config, &model)?;
    machine::find_rates(&*files, &mut config.machine)?;
    let limits = limits(args.profile, &config);
    let changed = args.data_changed.is_some();
    let source = source_digest(&*files, &config)?;
    if let Some(origin) = &config.origin {
        origin.check_tokens(&*files, &dir, (&config, source.as_ref()), changed)?;
    }
    model.check_data(&*files, &config)?;
    let has_tokens = files.metadata(&dir.tokens())?.is_some();
    let (forecast, reserve) = fitting(&*files, &mut config, &model, has_tokens)?;
    let made = make_tokens(&files, &dir, &mut config, &model)?;
    let mut session = Session::new(&config, &model, Some(reserve))?;
    let data = RunData::open(&files, &config, &model, &dir.tokens())?;
    held_out::check_count(&config, data.counts()[1])?;
    let (counters, loaded) = load_state(&*files, &config, &dir, &mut session)?;
    let json = model.to_json();
    let tokens = dir.tokens();
    let now = Origin::of(
        &*files,
        &config,
        &json,
        (&data, &tokens),
        counters.is_some() && !config.needs_base(),
        source,
    )?;
    if let Some(before) = config.origin.as_ref().filter(|_| !changed)
        && let Err(failure) = before.check(&now, &config)
    {
        if made {
            files.remove_file(&tokens)?;
        }
        return Err(failure);
    }
    let done = counters.as_ref().map_or(0, |counters| counters.step);
    check_length(args, &config, done)?;
    let steps = config.training.steps.saturating_sub(done);
    saved_state::check_space(&*files, &dir, &session, steps)?;
    let mut log = Log::open(&*files, &dir.log(), done)?;
    say_where(&mut log, &notes, counters.as_ref(), loaded.as_ref())?;
    let mut phases = Phases::default();
    phases.end("resume", &session);
    config.origin = Some(now.after(config.origin.take()));
    config.write(&*files, &dir.config())?;
    say_memory(&mut log, args.changes.memory)?;
    log.say(&left(&forecast, done, config.training.steps))?;
    let events = events(&*files, &dir, (&config, done))?;
    let samples = samples(&files, &dir, &session)?;
    Run {
        files: &files,
        dir: &dir,
        log,
        session,
        data,
        counters,
        events,
        samples,
        best: best(&*files, &dir, (done, changed))?,
        phases,
        profile: args.profile.then_some(limits),
        json: args.json,
    }
    .run()
}

/// That a run that is asked to end is not asked to have ended before.
fn check_length(args: &ResumeArgs, config: &RunConfig, done: u64) -> Result<(), Failure> {
    let asked = args.changes.steps.is_some() || args.changes.epochs.is_some();
    let steps = config.training.steps;
    require(!asked || steps >= done, "steps", &steps, || {
        format!("at least {done}, the steps that the run has done")
    })?;
    Ok(())
}

/// The best state of a run that goes on, if it is still there, and the data that told it is the same.
fn best(
    files: &dyn Files,
    dir: &RunDir,
    (done, changed): (u64, bool),
) -> Result<Option<Best>, Failure> {
    let best = Best::read(files, dir.path())?.filter(|best| best.step <= done && !changed);
    let Some(best) = best else {
        return Ok(None);
    };
    let state = dir.checkpoints().join(state_name(best.step));
    Ok(files.metadata(&state)?.map(|_| best))
}

/// Makes the tokens that a run lacks, and counts the steps of one that was asked for in epochs. Answers whether it
/// made any.
fn make_tokens(
    files: &Arc<dyn Files>,
    dir: &RunDir,
    config: &mut RunConfig,
    model: &Blueprint,
) -> Result<bool, Failure> {
    let made = tokenize::spool(&**files, config, model, &dir.tokens())?.is_some();
    if made {
        dir.own(&**files, [dir.tokens()])?;
    }
    if let Some(epochs) = config.training.epochs.take() {
        let data = RunData::open(files, config, model, &dir.tokens())?;
        config.training.steps = data.steps(config, epochs.count);
        if let Some(note) = config.shorten_warmup() {
            output::news(&note);
        }
        config.validate(model)?;
    }
    Ok(made)
}

fn say_memory(log: &mut Log, memory: Option<Bytes>) -> Result<(), Failure> {
    memory.map_or(Ok(()), |memory| {
        let text = "from now on, also for later resumes without --memory";
        Ok(log.say(&format!("the budget is {memory} {text}"))?)
    })
}

/// Says where a run goes on, or that it begins.
fn say_where(
    log: &mut Log,
    notes: &[String],
    counters: Option<&Counters>,
    loaded: Option<&String>,
) -> Result<(), Failure> {
    notes.iter().try_for_each(|note| log.say(note))?;
    let Some(counters) = counters else {
        loaded.map_or(Ok(()), |note| log.say(note))?;
        return Ok(log.say("no saved state yet: starting at the first step")?);
    };
    Ok(log.say(&format!("resuming after step {}", counters.step))?)
}

/// What a run has saved, and a word on the weights that it began with: those are read where there is nothing
/// saved, or only what was trained beside them.
fn load_state(
    files: &dyn Files,
    config: &RunConfig,
    dir: &RunDir,
    session: &mut Session,
) -> Result<(Option<Counters>, Option<String>), Failure> {
    // Before what was saved: of a model that is compared with itself as it was, what it was.
    if config.needs_base() {
        load_weights(files, config, session)?;
    }
    let counters = saved_state::load(files, &dir.checkpoints(), session)?;
    let begins = counters.is_none() && !config.needs_base();
    let loaded = begins.then(|| load_weights(files, config, session));
    Ok((counters, loaded.transpose()?.flatten()))
}

/// What is still to be done, and what it takes.
fn left(forecast: &highwater::Forecast, done: u64, steps: u64) -> String {
    if done < steps {
        report::announce(forecast, steps - done)
    } else {
        format!("all {steps} steps are done; --steps N continues to step N")
    }
}
