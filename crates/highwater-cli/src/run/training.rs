//! The training loop: batches, steps, metrics, saves, and how it ends.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use highwater::optim::GradScaler;
use highwater_memory::Files;
use highwater_memory::saved::write_atomic;

use super::log::Log;
use super::metrics::{Metrics, Record};
use super::pace::Pace;
use super::profile::Profile;
use super::progress::Progress;
use super::samples::Samples;
use super::tensorboard::Events;
use super::{final_model, report, saved_state};
use crate::config::ModelSource;
use crate::data::{Feed, RunData};
use crate::error::{Code, Failure};
use crate::folder::{Best, Counters, RunDir, state};
use crate::machine::{self, Machine, MachineLimits};
use crate::model::{Model, base};
use crate::planning::Phases;
use crate::session::{HeldOut, Session, StepResult};
use crate::state_name::state_name;
use crate::terminal::signals::Signals;

/// A run that is about to start or to go on.
#[derive(Debug)]
pub struct Run<'a> {
    /// Files.
    pub files: &'a Arc<dyn Files>,
    /// The run's folder.
    pub dir: &'a RunDir,
    /// What is said meanwhile.
    pub log: Log,
    /// What trains.
    pub session: Session,
    /// What it trains on.
    pub data: RunData,
    /// Where an earlier start of the run left off.
    pub counters: Option<Counters>,
    /// Where steps are told to TensorBoard, if they are.
    pub events: Option<Events>,
    /// What the model is shown to go on from, while it trains.
    pub samples: Option<Samples>,
    /// Which state did best on what is held out, where that is measured meanwhile.
    pub best: Option<Best>,
    /// What the parts of the run took so far.
    pub phases: Phases,
    /// Whether a profile is asked for, and the machine's limits if they are known.
    pub profile: Option<Option<MachineLimits>>,
    /// Whether the result is to be printed as JSON.
    pub json: bool,
}

/// After so many steps it is told if predictions are wrong: what is measured corrects them first.
const TELLING_STEPS: u64 = 5;
/// So many steps say something about the machine.
const MANY_STEPS: usize = 8;

impl Run<'_> {
    /// Trains to the last step, or until a signal.
    ///
    /// # Errors
    /// [`Failure`]; the last saved state is whole.
    pub fn run(mut self) -> Result<ExitCode, Failure> {
        let result = self.go().map_err(|failure| self.explain(failure));
        let (files, dir) = (self.files, self.dir);
        let Err(failure) = result else {
            return result;
        };
        // The failure itself is what the user has to know.
        let _ = self.log.note(&failure.to_string());
        // Its files are closed.
        drop(self);
        Err(match dir.give_back(&**files) {
            Ok(false) if failure.is_disk_full() => failure.hint(format!(
                "`highwater resume {}` then continues the run from its last saved state",
                dir.path().display()
            )),
            Ok(false) => failure,
            Ok(true) => failure.hint("the run that --force was to replace is back in its folder"),
            Err(error) => failure.hint(format!(
                "the run that --force was to replace is in {}: {error}",
                dir.replaced().display()
            )),
        })
    }

    /// Blames weights that are not finite for a first step that is not: no setting mends them.
    fn explain(&self, failure: Failure) -> Failure {
        let counters = self.counters.as_ref();
        let before = counters.map_or(0, |counters| counters.optimizer_steps);
        if self.session.optimizer.steps() > before + 1 {
            return failure;
        }
        let mut weights = Vec::new();
        if let ModelSource::Folder(folder) = &self.session.config().model.source {
            weights.push(folder.clone());
        }
        let saved = counters.map(|counters| self.dir.checkpoints().join(state_name(counters.step)));
        weights.extend(saved.map(|saved| saved.join(state::MODEL)));
        base::explain(&**self.files, &weights, failure)
    }

    fn go(&mut self) -> Result<ExitCode, Failure> {
        let signals =
            Signals::listen().map_err(|error| Failure::system("listen to signals", &error))?;
        let config = self.session.config().clone();
        let mut batches = self.data.batches(&config)?;
        let done = self.counters.as_ref().map_or(0, |counters| counters.step);
        if let Some(counters) = &self.counters {
            batches.seek(counters.cursor)?;
        }
        let before = self.look("before", done)?;
        let mut metrics = Metrics::open(&**self.files, &self.dir.metrics(), done)?;
        let steps = config.training.steps;
        let mut progress = Progress::new(done, steps, config.machine.memory, config.task);
        let (mut losses, mut pace) = (Vec::new(), Pace::default());
        for step in done + 1..=steps {
            let (mut record, failure) = self.step(step, &mut batches)?;
            self.phases.end("step", &self.session);
            self.log.at(step);
            record.held_out_loss = self.look_meanwhile(step, failure.is_none())?;
            metrics.write(&record)?;
            self.events.iter_mut().try_for_each(|to| to.step(&record))?;
            progress.step(&record);
            pace.step(&record);
            if step == done + TELLING_STEPS
                && let Some(note) = pace.note(steps - step)
            {
                self.log.say(&note)?;
            }
            losses.push(record.loss);
            if step == 1 {
                self.write_plan()?;
            }
            let looked = (step, record.held_out_loss);
            let ended = self.end_step(looked, failure, (&batches, &mut metrics, &signals));
            if !matches!(ended, Ok(None)) {
                progress.finish();
            }
            if let Some(code) = ended? {
                return Ok(code);
            }
        }
        progress.finish();
        if done == steps {
            self.save(steps, &batches)?;
            self.drop_old_states()?;
        }
        final_model::finish(&**self.files, self.dir, &self.session, steps)?;
        self.dir.settle(&**self.files)?;
        self.phases.end("save", &self.session);
        let profile = (self.profile).map(|machine| Profile::of(&self.session.engine, machine));
        let after = self.look_at_the_end(steps)?;
        self.remember_disk();
        if losses.len() >= MANY_STEPS && pace.off().is_some() {
            Machine::this(config.machine.threads).doubt(&**self.files);
        }
        let losses = report::Losses {
            train: losses,
            held_out: before.zip(after),
            best: self.best,
        };
        report::finished(
            &self.session,
            self.dir,
            &losses,
            &self.data,
            (&pace, &self.phases, profile.as_ref()),
            self.json,
        )
    }

    /// Saves after a step, where that is due, asked for, or the last thing to do. Answers the exit code of a run that
    /// was told to stop.
    fn end_step(
        &mut self,
        (step, held_out_loss): (u64, Option<f32>),
        failure: Option<Failure>,
        (batches, metrics, signals): (&Feed, &mut Metrics, &Signals),
    ) -> Result<Option<ExitCode>, Failure> {
        let steps = self.session.config().training.steps;
        let best = held_out_loss.and_then(|loss| self.improved(step, loss));
        let stop = signals.stop_code();
        self.tell_of_stop(stop.is_some() && step < steps)?;
        let asked = self.save_is_asked(signals)?;
        let ends = step == steps || stop.is_some() || failure.is_some();
        let saves = asked || ends || best.is_some() || self.save_is_due(step);
        if saves {
            metrics.sync()?;
            self.save(step, batches)?;
            match best {
                Some(best) => self.keep_best(best)?,
                None => self.drop_old_states()?,
            }
            self.phases.end("save", &self.session);
        }
        if asked {
            let dir = self.dir.checkpoints();
            self.log.say(&format!(
                "saved the state after step {step}, as requested: {}",
                dir.display()
            ))?;
        }
        if let Some(failure) = failure {
            let is_kept = self.files.metadata(&self.dir.replaced())?.is_none();
            let hint = is_kept.then_some("the state after this step is saved");
            return Err(hint.into_iter().fold(failure, Failure::hint));
        }
        if saves {
            self.dir.settle(&**self.files)?;
        }
        let Some(code) = stop.filter(|_| step < steps) else {
            return Ok(None);
        };
        let dir = self.dir.path().display();
        self.log.say(&format!(
            "stopped after step {step}; the state is saved\nhint: `highwater resume {dir}` resumes from there"
        ))?;
        Ok(Some(ExitCode::from(code)))
    }

    /// Looks at the model after a step, if it is time for that and the run goes on: after the last step it is looked
    /// at anyway. Answers the loss on what is held out.
    fn look_meanwhile(&mut self, step: u64, goes_on: bool) -> Result<Option<f32>, Failure> {
        let config = self.session.config();
        let every = config.output.eval_every;
        let is_due = every.is_some_and(|every| step.is_multiple_of(every));
        if !(goes_on && is_due && step < config.training.steps) {
            return Ok(None);
        }
        let found = self.look(&format!("after step {step}"), step)?;
        Ok(found.map(|found| found.loss))
    }

    fn tell_of_stop(&mut self, is_asked: bool) -> Result<(), Failure> {
        if is_asked {
            self.log.say(
                "stopping after the state is saved; a second signal stops at once, without saving",
            )?;
        }
        Ok(())
    }

    /// Looks at the model after the last step, which may be the best.
    fn look_at_the_end(&mut self, steps: u64) -> Result<Option<HeldOut>, Failure> {
        let after = self.look("after", steps)?;
        if self.session.config().output.eval_every.is_some()
            && let Some(best) = after.and_then(|found| self.improved(steps, found.loss))
        {
            self.keep_best(best)?;
        }
        Ok(after)
    }

    /// The state after a step, if none did better on what is held out.
    fn improved(&self, step: u64, held_out_loss: f32) -> Option<Best> {
        let best = Best {
            step,
            held_out_loss,
        };
        let before = self.best.as_ref();
        before
            .is_none_or(|before| best.is_better(before))
            .then_some(best)
    }

    /// Remembers the best state, which is saved already, and lets the one before go.
    fn keep_best(&mut self, best: Best) -> Result<(), Failure> {
        best.write(&**self.files, self.dir)?;
        self.best = Some(best);
        self.drop_old_states()
    }

    fn drop_old_states(&self) -> Result<(), Failure> {
        let keep = self.session.config().output.keep;
        state::drop_old(
            &**self.files,
            &self.dir.checkpoints(),
            keep,
            self.best.map(|best| best.step),
        )
    }

    /// Whether it is time for a saved state.
    fn save_is_due(&self, step: u64) -> bool {
        let every = self.session.config().output.save_every;
        every > 0 && step.is_multiple_of(every)
    }

    /// Whether someone wants a saved state now: by SIGUSR1, or by the file `save.now`, which goes.
    fn save_is_asked(&mut self, signals: &Signals) -> Result<bool, Failure> {
        let (by_signal, path) = (signals.take_save(), self.dir.save_now());
        let found = self.files.metadata(&path)?;
        // A folder of that name is none of ours.
        let by_file = found.is_some_and(|found| !found.is_dir);
        if by_file && let Err(error) = self.files.remove_file(&path) {
            // The state is saved with each step then: better than not at all.
            self.log.note(&error.to_string())?;
        }
        Ok(by_signal || by_file)
    }

    /// Takes a step; what it answers beside its record is why no other should follow.
    fn step(
        &mut self,
        step: u64,
        batches: &mut Feed,
    ) -> Result<(Record, Option<Failure>), Failure> {
        let started = Instant::now();
        let before = self.session.engine.totals();
        let config = self.session.config();
        let (count, lr) = (
            config.training.accumulate,
            config.learning_rate().at(step - 1),
        );
        let tokens = config.tokens_per_step();
        let counted = batches.learned_of_next(count)?;
        let parts = (0..count).map(|_| batches.next_batch());
        let taken = self.session.step(step, parts, counted);
        let StepResult {
            loss,
            grad_norm,
            stop,
        } = taken.map_err(|failure| failure.at_step(step))?;
        let seconds = started.elapsed().as_secs_f64();
        let plan = self.session.engine.last_step();
        let after = self.session.engine.totals();
        let (io, host) = (after.io - before.io, after.host_io - before.host_io);
        let peak_rss_bytes = self.phases.peak_rss_bytes();
        let scaler = self.session.scaler.as_ref();
        let record = Record {
            step,
            tokens: step * tokens,
            epoch: self.data.epochs(self.session.config(), step),
            loss,
            lr,
            grad_norm: Some(grad_norm),
            loss_scale: scaler.map(GradScaler::get_scale),
            skipped_steps: scaler.map(GradScaler::skipped_steps),
            held_out_loss: None,
            seconds,
            tokens_per_second: tokens as f64 / seconds,
            predicted_seconds: after.predicted_seconds - before.predicted_seconds,
            planned_arena_bytes: plan.planned_arena_bytes,
            peak_arena_bytes: plan.peak_arena_bytes,
            planned_process_bytes: plan.planned_process_bytes,
            peak_rss_bytes,
            recomputed_nodes: u64::from(plan.recomputed_nodes),
            recompute_seconds: plan.recompute_seconds,
            bytes_read: io.bytes_read,
            bytes_written: io.bytes_written,
            io_wait_seconds: io.wait_seconds,
            overlap: io.overlap(),
            read_seconds: io.read_seconds,
            write_seconds: io.write_seconds,
            host_bytes_read: host.bytes_read,
            host_bytes_written: host.bytes_written,
            host_wait_seconds: host.wait_seconds,
        };
        Ok((record, stop.map(|failure| failure.at_step(step))))
    }

    /// Tells later runs what the disk did in this one.
    fn remember_disk(&self) {
        let engine = &self.session.engine;
        // Of a run that reads weights from their files too, those are not told apart.
        let config = self.session.config();
        let disk = config
            .machine
            .disk
            .as_ref()
            .filter(|_| config.base().is_none());
        if let (Some(disk), Some(rates)) = (disk, engine.disk_rates()) {
            let io = engine.totals().io;
            let moved = io.bytes_read + io.bytes_written;
            machine::remember(&**self.files, &disk.folder, rates.into(), moved);
        }
    }

    fn save(&mut self, step: u64, batches: &Feed) -> Result<(), Failure> {
        self.events.iter_mut().try_for_each(Events::sync)?;
        let dir = self.dir.checkpoints();
        saved_state::save(&**self.files, &dir, &self.session, step, batches.cursor())
    }

    /// What the plan is, beside the run.
    fn write_plan(&self) -> Result<(), Failure> {
        if let Some(forecast) = self.session.engine.forecast() {
            let json = serde_json::to_vec(&forecast)
                .map_err(|error| Failure::new(Code::Internal, error))?;
            self.dir.own(&**self.files, [self.dir.plan()])?;
            write_atomic(&**self.files, &self.dir.plan(), &json)?;
        }
        Ok(())
    }

    /// What the model comes to on what is held out, and how it goes on from texts, if those are asked for.
    fn look(&mut self, when: &str, step: u64) -> Result<Option<HeldOut>, Failure> {
        let config = self.session.config().clone();
        let held_out = self.data.held_out(&config)?;
        let found = self.session.evaluate(held_out)?;
        if let Some(found) = &found {
            self.log.say(&report::held_out(found, &config, when))?;
            let mut events = self.events.iter_mut();
            events.try_for_each(|to| to.held_out(step, found))?;
        }
        if let (Model::Text(model), Some(samples)) = (&self.session.model, &self.samples)
            && (found.is_some() || !samples.are_of_demo())
        {
            for line in samples.lines(&**model, &config, when)? {
                self.log.say(&line)?;
            }
        }
        if found.is_some() {
            self.phases.end("evaluate", &self.session);
        }
        Ok(found)
    }
}
