//! Plans a step of some settings, running nothing.

use highwater::{Engine, Forecast};
use highwater_memory::Bytes;

use super::assumptions::{Assumptions, Like, foreseen, session};
use crate::config::RunConfig;
use crate::error::{Code, Failure};
use crate::model::Blueprint;
use crate::session::Session;

/// Batches of a step that are planned one by one. From the second on they pose the same problem, so
/// that the time of more follows.
const BATCHES: usize = 16;
/// Steps that are planned at most where the plans of one leave cells in other places than they found them
/// in: after so many they have theirs.
const STEPS: u64 = 4;

/// Plans a step of some settings, without taking memory for it.
#[derive(Debug)]
pub struct Planner<'a> {
    pub(super) config: &'a RunConfig,
    model: &'a Blueprint,
    assumptions: &'a Assumptions,
    /// Planned last: its decisions serve other budgets too.
    engine: Option<Engine>,
}

impl<'a> Planner<'a> {
    /// One for these settings.
    pub fn new(config: &'a RunConfig, model: &'a Blueprint, assumptions: &'a Assumptions) -> Self {
        Self {
            config,
            model,
            assumptions,
            engine: None,
        }
    }

    /// The engine that planned last, with its decisions.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// What a step takes under the budget of the settings, once cells have their places. Where it does not fit, the
    /// floor is as far as it was planned: see [`Planner::with_floor`].
    ///
    /// # Errors
    /// [`Failure`] of the engine; a step that does not fit is an answer, not an error.
    pub fn forecast(&mut self) -> Result<Forecast, Failure> {
        self.at(self.config.machine.memory)
    }

    /// The same under another budget.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn at(&mut self, memory: Bytes) -> Result<Forecast, Failure> {
        let like = self.engine.take().map_or(Like::Nothing, Like::Plans);
        self.plan(memory, like)
    }

    /// The same without the decisions for other budgets: as a run finds it that has this one.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub(super) fn anew(&mut self, memory: Bytes) -> Result<Forecast, Failure> {
        let like = self.engine.take().map_or(Like::Nothing, Like::Searches);
        self.plan(memory, like)
    }

    fn plan(&mut self, memory: Bytes, like: Like) -> Result<Forecast, Failure> {
        let mut config = self.config.clone();
        config.machine.memory = memory;
        let mut session = session(&config, self.model, Some(self.assumptions), like)?;
        let refused = self.take_steps(&mut session, &config)?;
        // Where the system refused memory before anything was planned, that is what there is to say.
        let nothing =
            || refused.unwrap_or_else(|| Failure::new(Code::Internal, "a step planned nothing"));
        let mut forecast = foreseen(&session.engine).ok_or_else(nothing)?;
        self.assumptions.tokenize(&mut forecast);
        let accumulate = config.training.accumulate;
        repeat(
            &mut forecast,
            accumulate as f64 / accumulate.min(BATCHES) as f64,
        );
        self.engine = Some(session.engine);
        Ok(forecast)
    }

    /// Plans steps until cells have their places. Returns why one does not fit, if one does not.
    fn take_steps(
        &self,
        session: &mut Session,
        config: &RunConfig,
    ) -> Result<Option<Failure>, Failure> {
        let training = &config.training;
        let count = training.accumulate.min(BATCHES);
        let counted = (training.accumulate > 1 && config.counts_differ()).then_some(1);
        let steps = if config.moves_between_plans() {
            STEPS
        } else {
            1
        };
        for step in 1..=steps {
            let batches = (0..count).map(|_| Ok(self.model.blank(config, training.batch)));
            match session.step(step, batches, counted) {
                Ok(_) if session.engine.is_settled() => break,
                Ok(_) => {}
                Err(failure) if failure.code() == Code::Budget as u8 => return Ok(Some(failure)),
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }
}

/// Has a forecast of some batches of a step be one of `times` as many.
fn repeat(forecast: &mut Forecast, times: f64) {
    let nodes = |count: u32| (f64::from(count) * times).round() as u32;
    let bytes = |bytes: u64| (bytes as f64 * times) as u64;
    forecast.seconds_per_step *= times;
    forecast.recompute_seconds *= times;
    forecast.recomputed_nodes = nodes(forecast.recomputed_nodes);
    forecast.bytes_read = bytes(forecast.bytes_read);
    forecast.bytes_written = bytes(forecast.bytes_written);
    forecast.host_bytes_read = bytes(forecast.host_bytes_read);
    forecast.host_bytes_written = bytes(forecast.host_bytes_written);
    for price in &mut forecast.curve {
        price.seconds_per_step *= times;
        price.recompute_seconds *= times;
        price.recomputed_nodes = nodes(price.recomputed_nodes);
        price.bytes_read = bytes(price.bytes_read);
        price.bytes_written = bytes(price.bytes_written);
        price.host_bytes_read = bytes(price.host_bytes_read);
        price.host_bytes_written = bytes(price.host_bytes_written);
    }
}
