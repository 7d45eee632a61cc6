//! What other settings would bring: each is planned as the given ones were.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use highwater::Forecast;
use serde::Serialize;

use crate::config::{Master, Method, Moments, Policy, Precision, RunConfig, Task};
use crate::model::Blueprint;
use crate::planning::{Assumptions, Planner};

/// How many changes are told.
const TOLD: usize = 5;
/// What a change must bring to be told, as a share: less time, a lower peak or a lower floor.
const WORTH: f64 = 0.01;
/// Changes planned at the same time, at most: each takes memory of its own.
const THREADS: usize = 4;
/// How often the floor of a change is tried: see [`Planner::near_floor`].
const TRIES: usize = 3;

/// The changes of the settings that cost least.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changes {
    /// Those that fit first, then the fastest for a token.
    pub changes: Vec<Change>,
    /// How many more there are that bring something.
    pub changes_left_out: usize,
    /// How many were not planned because that took too long.
    pub changes_not_tried: usize,
}

/// A change of the settings and what it brings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The flags to give instead.
    pub flags: String,
    /// What becomes different in what is trained.
    pub effect: &'static str,
    /// Whether it fits the budget.
    pub fits: bool,
    /// The least budget that works, if it was found; else it is above this.
    pub floor_bytes: u64,
    /// Whether that was found.
    pub floor_found: bool,
    /// What the plan takes at most.
    pub peak_bytes: u64,
    /// Predicted seconds of a step, where it fits.
    pub seconds_per_step: Option<f64>,
    /// Predicted seconds for each token that a step learns from, where it fits.
    pub seconds_per_token: Option<f64>,
}

const ROUNDING: &str = "same batch in smaller parts; sums are rounded differently";

/// Flags, what they change about what is trained, and the settings with them.
type Candidate = (String, &'static str, RunConfig);

impl Changes {
    /// Plans each change that the settings allow, for as long as there is time for one more.
    pub(super) fn plan(
        config: &RunConfig,
        model: &Blueprint,
        assumptions: &Assumptions,
        forecast: &Forecast,
        (time, one): (Duration, Duration),
    ) -> Self {
        let started = Instant::now();
        let candidates = candidates(config);
        let next = AtomicUsize::new(0);
        // Plain threads: the pool of an engine makes those of another pool run something else while
        // they wait.
        let work = || {
            let mut planned = Vec::new();
            while started.elapsed() + one < time
                && let at = next.fetch_add(1, Ordering::Relaxed)
                && let Some((flags, effect, config)) = candidates.get(at)
            {
                let model = model.with_dropout(config.model.dropout);
                let mut planner = Planner::new(config, &model, assumptions);
                // What the model refuses, such as a single picture for its batch norms, brings nothing.
                let Ok(near) = planner.near_floor(TRIES) else {
                    continue;
                };
                let change = Change::of(flags, effect, tokens(config), &near.forecast);
                planned.push(Change {
                    floor_found: near.found,
                    ..change
                });
            }
            planned
        };
        let threads = config.machine.threads.min(THREADS);
        let planned = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|thread| {
                let planned = thread.join();
                planned.unwrap_or_else(|panic| resume_unwind(panic))
            });
            joined.collect::<Vec<_>>()
        });
        let mut changes = planned.concat();
        let changes_not_tried = candidates.len() - changes.len();
        let given = Change::of("", "", tokens(config), forecast);
        changes.retain(|change| brings_something(change, &given));
        changes.sort_by(|a, b| {
            let seconds = |change: &Change| change.seconds_per_token.unwrap_or(f64::INFINITY);
            let slower = seconds(a).total_cmp(&seconds(b));
            let larger = || a.floor_bytes.cmp(&b.floor_bytes);
            slower.then_with(larger).then_with(|| a.flags.cmp(&b.flags))
        });
        let changes_left_out = changes.len().saturating_sub(TOLD);
        changes.truncate(TOLD);
        Self {
            changes,
            changes_left_out,
            changes_not_tried,
        }
    }
}

impl Change {
    /// What a forecast of steps of so many tokens says, its floor taken as found.
    pub(super) fn of(flags: &str, effect: &'static str, tokens: u64, forecast: &Forecast) -> Self {
        let seconds = forecast.fits.then_some(forecast.seconds_per_step);
        Self {
            flags: flags.to_owned(),
            effect,
            fits: forecast.fits,
            floor_bytes: forecast.floor_bytes,
            floor_found: true,
            peak_bytes: forecast.peak_bytes,
            seconds_per_step: seconds,
            seconds_per_token: seconds.map(|seconds| seconds / tokens as f64),
        }
    }
}

/// Tokens that a step learns from.
pub(super) fn tokens(config: &RunConfig) -> u64 {
    (config.batch_shape().tokens() * config.training.accumulate) as u64
}

fn brings_something(change: &Change, given: &Change) -> bool {
    let less = |a: f64, b: f64| a < b * (1.0 - WORTH);
    let lower = change.floor_found && less(change.floor_bytes as f64, given.floor_bytes as f64);
    // What does not fit is no way to be faster.
    let seconds = change.seconds_per_token.zip(given.seconds_per_token);
    let faster = seconds.is_some_and(|(changed, given)| less(changed, given));
    lower || faster || (change.fits && !given.fits)
}

/// The changes that the settings allow; those of one plan first, which take least time to plan.
fn candidates(config: &RunConfig) -> Vec<Candidate> {
    let mut list = Vec::new();
    other_ways(config, &mut list);
    other_portions(config, &mut list);
    list
}

fn add(
    list: &mut Vec<Candidate>,
    config: &RunConfig,
    flags: impl Into<String>,
    effect: &'static str,
    set: impl FnOnce(&mut RunConfig),
) {
    let mut changed = config.clone();
    set(&mut changed);
    list.push((flags.into(), effect, changed));
}

/// Another optimizer, and what can be left out.
fn other_ways(config: &RunConfig, list: &mut Vec<Candidate>) {
    let without_moments = |config: &mut RunConfig| {
        config.optimizer.method = Method::Sgd { momentum: 0.0 };
    };
    match config.optimizer.method {
        Method::Adamw { .. } => {
            let effect = "another optimizer, without moments";
            add(list, config, "--optimizer sgd", effect, without_moments);
        }
        Method::Sgd { momentum } if momentum > 0.0 => {
            add(list, config, "--momentum 0", "no momentum", without_moments);
        }
        Method::Sgd { .. } => {}
    }
    if config.training.precision == Precision::F32 {
        let effect = "matrix products in half precision";
        add(list, config, "--precision bf16", effect, |config| {
            config.training.precision = Precision::Bf16;
        });
    }
    if config.optimizer.master.is_none() && config.training.precision != Precision::Fp16 {
        let flags = match config.training.precision {
            Precision::F32 => "--precision bf16 --master split",
            _ => "--master split",
        };
        let effect = "weights in half precision, updates in full precision";
        add(list, config, flags, effect, |config| {
            config.training.precision = Precision::Bf16;
            config.optimizer.master = Some(Master::Split);
        });
    }
    let has_moments = config.optimizer.method != Method::Sgd { momentum: 0.0 };
    if has_moments && config.optimizer.moments == Moments::F32 {
        let effect = "1 byte per moment";
        add(list, config, "--moments int8", effect, |config| {
            config.optimizer.moments = Moments::Int8;
        });
    }
    if config.optimizer.clip.is_some() {
        let effect = "gradients are not clipped";
        add(list, config, "--clip 0", effect, |config| {
            config.optimizer.clip = None;
        });
    }
    if config.model.dropout > 0.0 {
        add(list, config, "--dropout 0", "no dropout", |config| {
            config.model.dropout = 0.0;
        });
    }
    if config.machine.policy != Policy::Auto {
        add(list, config, "--policy auto", "same results", |config| {
            config.machine.policy = Policy::Auto;
        });
    }
}

/// Other sequences, batches and parts of batches.
fn other_portions(config: &RunConfig, list: &mut Vec<Candidate>) {
    let [fewer, more] = match config.task {
        Task::TextGeneration => ["fewer tokens per step", "more tokens per step"],
        Task::ImageClassification => ["fewer images per step", "more images per step"],
    };
    let training = &config.training;
    let (batch, seq, accumulate) = (training.batch, training.seq, training.accumulate);
    if seq > 1 {
        let flags = format!("--seq {}", seq / 2);
        add(
            list,
            config,
            flags,
            "sequences of half the length",
            |config| {
                config.training.seq = seq / 2;
            },
        );
    }
    if batch > 1 {
        let flags = format!("--batch {}", batch / 2);
        add(list, config, flags, fewer, |config| {
            config.training.batch = batch / 2;
        });
    }
    if accumulate > 1 {
        add(list, config, "--accumulate 1", fewer, |config| {
            config.training.accumulate = 1;
        });
    }
    let flags = format!("--batch {}", batch * 2);
    add(list, config, flags, more, |config| {
        config.training.batch = batch * 2;
    });
    for parts in [2, 4] {
        if batch.is_multiple_of(parts) {
            let (batch, accumulate) = (batch / parts, accumulate * parts);
            let flags = format!("--batch {batch} --accumulate {accumulate}");
            add(list, config, flags, ROUNDING, |config| {
                (config.training.batch, config.training.accumulate) = (batch, accumulate);
            });
        }
    }
}
