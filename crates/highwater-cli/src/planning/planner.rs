//! What settings would take, found by planning them and running nothing.

use highwater::{Engine, Forecast};
use highwater_memory::Bytes;

use super::assumptions::{Assumptions, Like, PLENTY, session};
use super::call::forecast;
use crate::config::RunConfig;
use crate::error::{Code, Failure};
use crate::model::Blueprint;

/// Batches of a step that are planned one by one. From the second on they pose the same problem, so
/// that the time of more follows.
const BATCHES: usize = 16;
/// Steps that are planned at most where the plans of one leave cells in other places than they found them
/// in: after so many they have theirs.
const STEPS: u64 = 4;
/// How often the floor of a step of several plans is tried upwards, before halving.
const TRIES: usize = 8;
/// Of a budget into which no step fits, so many shares above the floor are tried.
const SHARES: u64 = 4;
/// Halving ends when what is left is one part in so many, and at most so many bytes.
const NEAR: u64 = 256;
const NEAR_BYTES: u64 = 512 << 10;
/// So much less than a floor that is told is tried, as often as that does after all.
const UNIT_BYTES: u64 = 1 << 20;

/// What was learnt of a floor in some tries.
#[derive(Debug)]
pub struct NearFloor {
    /// With the floor, or the least that it is above.
    pub forecast: Forecast,
    /// A budget that does not do, in bytes; the floor itself where one plan tells it.
    pub refused: u64,
    /// Whether the floor of the forecast does.
    pub found: bool,
}

/// Plans a step of some settings, without taking memory for it.
#[derive(Debug)]
pub struct Planner<'a> {
    config: &'a RunConfig,
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

    /// What a step takes under the budget of the settings, once cells have their places. Where it does not fit, the floor is as far
    /// as it was planned: see [`Planner::with_floor`].
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

    fn plan(&mut self, memory: Bytes, like: Like) -> Result<Forecast, Failure> {
        let mut config = self.config.clone();
        config.machine.memory = memory;
        let training = &config.training;
        let count = training.accumulate.min(BATCHES);
        let several = training.accumulate > 1;
        let more = training.accumulate as f64 / count as f64;
        let assumptions = Some(self.assumptions);
        let mut session = session(&config, self.model, assumptions, like)?;
        let moves = config.moves_between_plans();
        let steps = if moves { STEPS } else { 1 };
        let mut refused = None;
        for step in 1..=steps {
            let batches = (0..count).map(|_| Ok(self.model.blank(&config, config.training.batch)));
            let counted = (several && config.counts_differ()).then_some(1);
            match session.step(step, batches, counted) {
                Ok(_) if session.engine.is_settled() => break,
                Ok(_) => {}
                Err(failure) if failure.code() == Code::Budget as u8 => {
                    refused = Some(failure);
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
        // Where the system refused memory before anything was planned, that is what there is to say.
        let nothing =
            || refused.unwrap_or_else(|| Failure::new(Code::Internal, "a step planned nothing"));
        let mut forecast = forecast(&session.engine).ok_or_else(nothing)?;
        self.assumptions.tokenize(&mut forecast);
        let scale = |nodes: u32| (f64::from(nodes) * more).round() as u32;
        let bytes = |bytes: u64| (bytes as f64 * more) as u64;
        forecast.seconds_per_step *= more;
        forecast.bytes_read = bytes(forecast.bytes_read);
        forecast.bytes_written = bytes(forecast.bytes_written);
        forecast.host_bytes_read = bytes(forecast.host_bytes_read);
        forecast.host_bytes_written = bytes(forecast.host_bytes_written);
        forecast.recompute_seconds *= more;
        forecast.recomputed_nodes = scale(forecast.recomputed_nodes);
        for price in &mut forecast.curve {
            price.seconds_per_step *= more;
            price.recompute_seconds *= more;
            price.recomputed_nodes = scale(price.recomputed_nodes);
            price.bytes_read = bytes(price.bytes_read);
            price.bytes_written = bytes(price.bytes_written);
            price.host_bytes_read = bytes(price.host_bytes_read);
            price.host_bytes_written = bytes(price.host_bytes_written);
        }
        self.engine = Some(session.engine);
        Ok(forecast)
    }

    /// The same without the decisions for other budgets: as a run finds it that has this one.
    fn anew(&mut self, memory: Bytes) -> Result<Forecast, Failure> {
        let like = self.engine.take().map_or(Like::Nothing, Like::Searches);
        self.plan(memory, like)
    }

    /// What a step takes, with the floor of all of it; where it does not fit, of the plan at its floor.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn with_floor(&mut self) -> Result<Forecast, Failure> {
        let near = self.near_floor(TRIES)?;
        let (mut forecast, mut refused) = (near.forecast, near.refused);
        let mut found = near.found;
        if !found {
            let plenty = self.at(PLENTY)?.peak_bytes;
            found = self.try_floor(&mut forecast, plenty)?;
        }
        // Where there is no end to it, or a refusal asked for too much, what is found by halving is near
        // the least.
        let near = |refused: u64| (refused / NEAR).min(NEAR_BYTES);
        while found && forecast.floor_bytes.saturating_sub(refused) > near(refused) {
            let middle = refused.midpoint(forecast.floor_bytes);
            if !self.try_floor(&mut forecast, middle)? {
                refused = middle;
            }
        }
        // Of several plans the later ones may do with less and not with a little more, as the earlier ones
        // left them more or less; and with tiers what a plan asks for of nothing may be more than it needs.
        let several = self.config.training.accumulate > 1;
        for _ in 0..TRIES {
            let less = forecast.floor_bytes.saturating_sub(UNIT_BYTES);
            if !(found && several && self.try_floor(&mut forecast, less)?) {
                break;
            }
        }
        Ok(forecast)
    }

    /// What a step takes under the most of the budget that one was found to fit into, with its floor. Of
    /// several plans the later ones may do with the floor and not with somewhat more, as the earlier ones
    /// leave less room then: the forecast is of a smaller budget where there is one that does.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn within(&mut self) -> Result<Forecast, Failure> {
        let stated = self.with_floor()?;
        let floor = stated.floor_bytes;
        let spare = stated.budget_bytes.saturating_sub(floor);
        if stated.fits || stated.budget_bytes < floor {
            return Ok(stated);
        }
        for share in (0..SHARES).rev() {
            let less = self.anew(Bytes(floor + spare * share / SHARES))?;
            if less.fits {
                return Ok(Forecast {
                    floor_bytes: floor,
                    floor_at: stated.floor_at,
                    floor_held: stated.floor_held,
                    ..less
                });
            }
        }
        Ok(stated)
    }

    /// The floor in so many tries.
    ///
    /// A step of several plans is refused by the first that does not fit, with what that one needs:
    /// that is tried next.
    ///
    /// # Errors
    /// As [`Planner::forecast`].
    pub fn near_floor(&mut self, tries: usize) -> Result<NearFloor, Failure> {
        let forecast = self.forecast()?;
        let mut near = NearFloor {
            refused: forecast.floor_bytes,
            found: self.config.training.accumulate == 1,
            forecast,
        };
        let mut memory = 1;
        for _ in 0..tries {
            if near.found {
                break;
            }
            let least = self.anew(Bytes(memory))?;
            near.found = least.fits;
            // What the first plan asks for of nothing is its floor; what later ones ask for depends on
            // what those before them left.
            if !near.found {
                near.refused = if memory == 1 {
                    least.floor_bytes.saturating_sub(1)
                } else {
                    memory
                };
            }
            memory = memory.max(least.floor_bytes);
            take_floor(&mut near.forecast, least, memory);
        }
        Ok(near)
    }

    /// Takes a budget for the floor if a step fits into it.
    fn try_floor(&mut self, forecast: &mut Forecast, memory: u64) -> Result<bool, Failure> {
        let least = self.anew(Bytes(memory))?;
        let found = least.fits;
        if found {
            take_floor(forecast, least, memory);
        }
        Ok(found)
    }
}

/// Tells of another floor; where the step does not fit, of the plan there.
fn take_floor(forecast: &mut Forecast, least: Forecast, floor_bytes: u64) {
    if !forecast.fits {
        let budget_bytes = forecast.budget_bytes;
        *forecast = Forecast {
            fits: false,
            budget_bytes,
            ..least.clone()
        };
    }
    forecast.floor_bytes = floor_bytes;
    forecast.floor_at = least.floor_at;
    forecast.floor_held = least.floor_held;
}
