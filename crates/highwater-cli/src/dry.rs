//! What settings would take, found by planning them and running nothing.

use highwater::{Engine, Forecast, Price};
use highwater_memory::Bytes;
use highwater_models::Gpt2Config;

use crate::config::RunConfig;
use crate::error::{Code, Failure};
use crate::session::{Batch, Session};

/// Batches of a step that are planned one by one. From the second on they pose the same problem, so
/// that the time of more follows.
const BATCHES: usize = 16;

/// What a plan is made for.
#[derive(Clone, Debug)]
pub struct Assumptions {
    /// What the process takes beside its tensors, in bytes.
    pub reserve_bytes: u64,
    /// How many budgets' prices are told at most, for the curve of a forecast.
    pub prices: usize,
}

impl Assumptions {
    /// Those of this process on this machine.
    ///
    /// # Errors
    /// [`Failure`] of the engine.
    pub fn measure(config: &RunConfig, model: &Gpt2Config) -> Result<Self, Failure> {
        // Measured before there are batches, as when a run starts.
        let session = Session::dry(config, model, None, None)?;
        Ok(Self {
            reserve_bytes: session.engine.reserve_bytes(),
            prices: 0,
        })
    }
}

/// What a step of these settings takes, without taking memory for it. Where it does not fit, the
/// floor is as far as it was planned: see [`with_floor`].
///
/// # Errors
/// [`Failure`] of the engine; a step that does not fit is an answer, not an error.
pub fn forecast(
    config: &RunConfig,
    model: &Gpt2Config,
    assumptions: &Assumptions,
) -> Result<Forecast, Failure> {
    look(config, model, assumptions, None).map(|(forecast, _)| forecast)
}

/// The same, with the decisions of an engine that planned the same steps, and the engine that did it.
fn look(
    config: &RunConfig,
    model: &Gpt2Config,
    assumptions: &Assumptions,
    like: Option<&Engine>,
) -> Result<(Forecast, Engine), Failure> {
    let tokens = config.training.batch * config.training.seq;
    let batch: Batch = (vec![0; tokens], vec![0; tokens]);
    let accumulate = config.training.accumulate;
    let count = accumulate.min(BATCHES);
    let mut session = Session::dry(config, model, Some(assumptions), like)?;
    match session.step(1, &vec![batch; count]) {
        Ok(_) => {}
        Err(failure) if failure.code() == Code::Budget as u8 => {}
        Err(failure) => return Err(failure),
    }
    let nothing = || Failure::new(Code::Internal, "a step planned nothing");
    let mut forecast = session.engine.forecast().ok_or_else(nothing)?;
    let more = accumulate as f64 / count as f64;
    let scale = |nodes: u32| (f64::from(nodes) * more).round() as u32;
    forecast.seconds_per_step *= more;
    forecast.recompute_seconds *= more;
    forecast.recomputed_nodes = scale(forecast.recomputed_nodes);
    for price in &mut forecast.curve {
        price.seconds_per_step *= more;
        price.recompute_seconds *= more;
        price.recomputed_nodes = scale(price.recomputed_nodes);
    }
    Ok((forecast, session.engine))
}

/// The same with the floor of the whole step. A step of several plans is refused by the first that
/// does not fit, with what that one needs: its floor is found by trying, upwards, at most so often.
///
/// # Errors
/// As [`forecast`].
pub fn with_floor(
    config: &RunConfig,
    model: &Gpt2Config,
    assumptions: &Assumptions,
    tries: usize,
) -> Result<Forecast, Failure> {
    let (mut forecast, mut engine) = look(config, model, assumptions, None)?;
    if config.training.accumulate == 1 {
        return Ok(forecast);
    }
    let mut less = config.clone();
    less.machine.memory = Bytes(if forecast.fits {
        1
    } else {
        forecast.floor_bytes
    });
    for _ in 0..tries {
        let least;
        (least, engine) = look(&less, model, assumptions, Some(&engine))?;
        forecast.floor_bytes = least.floor_bytes.max(less.machine.memory.0);
        forecast.floor_at.clone_from(&least.floor_at);
        forecast.floor_held.clone_from(&least.floor_held);
        if least.fits {
            add_floor(&mut forecast.curve, &least);
            break;
        }
        less.machine.memory = Bytes(least.floor_bytes);
    }
    Ok(forecast)
}

/// Adds what a step costs at its floor to the prices, and drops what is below it.
fn add_floor(curve: &mut Vec<Price>, least: &Forecast) {
    curve.retain(|price| price.bytes > least.budget_bytes);
    curve.push(Price {
        bytes: least.budget_bytes,
        seconds_per_step: least.seconds_per_step,
        recomputed_nodes: least.recomputed_nodes,
        recompute_seconds: least.recompute_seconds,
    });
}
