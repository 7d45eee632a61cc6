//! All that `plan` says.

use std::time::{Duration, Instant};

use highwater::Forecast;
use serde::Serialize;

use super::changes::{self, Changes};
use super::ladder::{self, Rung};
use crate::config::{Master, Method, Moments, Policy, Precision, RunConfig, Task};
use crate::error::Failure;
use crate::model::Blueprint;
use crate::planning::{Assumptions, Phase, Planner, plan_phases};

/// Layers of a model whose plans are all packed, to know what each costs. Of deeper models some are: packing
/// takes longer than the search that finds them.
const ALL_PRICES_LAYERS: usize = 64;
/// How many are packed then.
const SOME_PRICES: usize = 24;
/// The version of the JSON's format: a field that goes, or means something else, makes the next.
const FORMAT: u32 = 2;

/// All that `plan` says.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this format.
    pub format: u32,
    /// The settings that decide.
    pub settings: Settings,
    /// All settings, by the names that they have in `config.toml`.
    pub config: RunConfig,
    /// Tokens or pictures that a step learns from.
    pub tokens_per_step: u64,
    /// Predicted tokens or pictures per second.
    pub tokens_per_second: f64,
    /// The step as planned.
    #[serde(flatten)]
    pub forecast: Forecast,
    /// The most memory that each part of a run takes; none where a step does not fit.
    pub phases: Vec<Phase>,
    /// Budgets from the floor to where nothing is computed twice.
    pub ladder: Vec<Rung>,
    /// What other settings would bring.
    #[serde(flatten)]
    pub changes: Changes,
}

/// The settings that decide about memory and time.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// What the model learns to do.
    pub task: Task,
    /// Name of the preset, or the model's folder.
    pub model: String,
    /// Sequences or pictures in a batch.
    pub batch: usize,
    /// Tokens in a sequence; 1 of pictures.
    pub seq: usize,
    /// Side of pictures, in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Batches of one step.
    pub accumulate: usize,
    /// In which precision products are computed.
    pub precision: Precision,
    /// What the updates of weights in half precision are added to.
    pub master: Option<Master>,
    /// How moments are held.
    pub moments: Moments,
    /// The optimizer.
    pub optimizer: &'static str,
    /// The largest norm of all gradients; none where they are not clipped.
    pub clip: Option<f64>,
    /// Probability of dropout.
    pub dropout: f64,
    /// What may be recomputed.
    pub policy: Policy,
    /// Threads to compute with.
    pub threads: usize,
    /// Whether what is read from disk is weights in the model's own files: there is no other disk.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub from_files: bool,
}

impl Settings {
    fn new(config: &RunConfig) -> Self {
        Self {
            task: config.task,
            model: config.model.source.to_string(),
            batch: config.training.batch,
            seq: config.training.seq,
            size: config.training.size,
            accumulate: config.training.accumulate,
            precision: config.training.precision,
            master: config.optimizer.master,
            moments: config.optimizer.moments,
            optimizer: match config.optimizer.method {
                Method::Adamw { .. } => "adamw",
                Method::Sgd { .. } => "sgd",
            },
            clip: config.optimizer.clip,
            dropout: config.model.dropout,
            from_files: config.base().is_some() && config.machine.disk.is_none(),
            policy: config.machine.policy,
            threads: config.machine.threads,
        }
    }
}

impl Report {
    /// Plans settings, and changes of them for as long as `time` lasts.
    ///
    /// # Errors
    /// [`Failure`] of the engine; a step that does not fit is an answer, not an error.
    pub fn new(
        config: &RunConfig,
        model: &Blueprint,
        assumptions: &Assumptions,
        time: Duration,
    ) -> Result<Self, Failure> {
        let started = Instant::now();
        // Of steps of several plans, or with tiers below memory, the prices are found by planning each
        // budget.
        let single = config.training.accumulate == 1 && !config.has_tiers();
        let priced = Assumptions {
            prices: match single {
                true if model.depth() <= ALL_PRICES_LAYERS => usize::MAX,
                true => SOME_PRICES,
                false => 0,
            },
            ..assumptions.clone()
        };
        let mut planner = Planner::new(config, model, &priced);
        let mut forecast = planner.within()?;
        let planning = started.elapsed();
        if !single || forecast.plans > 1 {
            forecast.curve = ladder::several(&forecast, &mut planner)?;
        }
        let tokens = changes::tokens(config);
        Ok(Self {
            format: FORMAT,
            settings: Settings::new(config),
            config: config.clone(),
            tokens_per_step: tokens,
            tokens_per_second: tokens as f64 / forecast.seconds_per_step,
            phases: if forecast.fits {
                plan_phases(config, model, assumptions, (&forecast, planner.engine()))?
            } else {
                Vec::new()
            },
            ladder: ladder::ladder(&forecast),
            changes: {
                let left = time.saturating_sub(started.elapsed());
                Changes::plan(config, model, assumptions, &forecast, (left, planning))
            },
            forecast,
        })
    }
}
