//! The most memory that each part of a run takes: planned, and as the system counts it.

use highwater::{Forecast, Parameter};
use highwater_memory::process::{Usage, reset_peak};
use serde::Serialize;

use super::assumptions::{Assumptions, Like, PLENTY, session};
use crate::config::{RunConfig, Task};
use crate::error::{Code, Failure};
use crate::model::Blueprint;
use crate::session::Session;

/// What one part of a run takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// `load`, `resume`, `step`, `evaluate` or `save`.
    pub phase: &'static str,
    /// Bytes that the process is planned to take at most.
    pub planned_bytes: u64,
    /// Bytes that it had at most, by the system's count; none before a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
}

/// Follows a run through its parts.
#[derive(Debug, Default)]
pub struct Phases {
    list: Vec<Phase>,
    /// The most before the latest reset of the system's counter.
    highest: u64,
}

impl Phases {
    /// Ends a part: what was taken since the last one counts for it.
    pub fn end(&mut self, phase: &'static str, session: &Session) {
        let planned = planned(session);
        let peak = Usage::read().map_or(0, |usage| usage.peak);
        // Where the system cannot forget the peak, it is that of all parts so far.
        let _ = reset_peak();
        self.highest = self.highest.max(peak);
        self.note(phase, planned, Some(peak));
    }

    fn note(&mut self, phase: &'static str, planned: u64, peak: Option<u64>) {
        if let Some(known) = self.list.iter_mut().find(|known| known.phase == phase) {
            known.planned_bytes = known.planned_bytes.max(planned);
            known.peak_rss_bytes = known.peak_rss_bytes.max(peak);
            return;
        }
        self.list.push(Phase {
            phase,
            planned_bytes: planned,
            peak_rss_bytes: peak,
        });
    }

    /// The parts so far.
    pub fn list(&self) -> &[Phase] {
        &self.list
    }

    /// The most that the process had in any part.
    pub fn peak_rss_bytes(&self) -> u64 {
        let now = Usage::read().map_or(0, |usage| usage.peak);
        self.highest.max(now)
    }
}

/// What the parts of a run with these settings would take, whose steps are as forecast. Empty if a step
/// does not fit.
///
/// # Errors
/// [`Failure`] of the engine.
pub fn plan_phases(
    config: &RunConfig,
    model: &Blueprint,
    assumptions: &Assumptions,
    (forecast, like): (&Forecast, Option<&highwater::Engine>),
) -> Result<Vec<Phase>, Failure> {
    let like = like.cloned().map_or(Like::Nothing, Like::Plans);
    let mut session = session(config, model, Some(assumptions), like)?;
    let mut phases = Phases::default();
    let mut end = |phase, session: &Session| {
        phases.note(phase, planned(session), None);
    };
    end("load", &session);
    touch(&session, |parameter| parameter.with_bytes_mut(|_| ()))?;
    end("resume", &session);
    let training = &config.training;
    let held_out = || {
        let batch = match model.task() {
            Task::TextGeneration => 1,
            Task::ImageClassification => training.batch,
        };
        std::iter::once(Ok(model.blank(config, batch)))
    };
    session.evaluate(held_out())?;
    end("evaluate", &session);
    let count = training.accumulate.min(2);
    let batches = (0..count).map(|_| Ok(model.blank(config, training.batch)));
    let counted = (count > 1 && config.counts_differ()).then_some(1);
    match session.step(1, batches, counted) {
        Ok(_) => end("step", &session),
        Err(failure) if failure.code() == Code::Budget as u8 => return Ok(Vec::new()),
        Err(failure) => return Err(failure),
    }
    touch(&session, |parameter| parameter.with_bytes(|_| ()))?;
    end("save", &session);
    session.evaluate(held_out())?;
    end("evaluate", &session);
    // A run corrects what it knows of a disk's pace, and the plans that it then finds may put more of the
    // state into memory, as far as there is room.
    let moves = forecast.bytes_read + forecast.bytes_written > 0;
    if let Some(budget) = stated(&session).filter(|_| moves) {
        let trains = |phase: &&mut Phase| ["step", "save"].contains(&phase.phase);
        let trained = phases.list.iter_mut().filter(trains);
        trained.for_each(|phase| phase.planned_bytes = budget);
    }
    Ok(phases.list)
}

/// What the process may take, if that is stated.
fn stated(session: &Session) -> Option<u64> {
    let budget = session.config().machine.memory;
    (budget < PLENTY).then_some(budget.0)
}

/// The most that was planned since this was last asked.
fn planned(session: &Session) -> u64 {
    let most = session.engine.take_peak_bytes();
    // What is over would be given up for it: see the engine's store.
    stated(session).map_or(most, |budget| most.min(budget))
}

/// Does something with each tensor that is saved.
fn touch(
    session: &Session,
    mut with: impl FnMut(&Parameter) -> highwater::Result<()>,
) -> Result<(), Failure> {
    let model = session.model.saved();
    let moments = session.optimizer.state_dict();
    for (_, parameter) in model.iter().chain(&moments) {
        with(parameter)?;
    }
    Ok(())
}
