//! From flags to how long and in which portions a run trains.

use super::defaults::Defaults;
use crate::args::RunArgs;
use crate::config::{Epochs, TrainingConfig};
use crate::error::Failure;
use crate::model::Blueprint;

/// How long and how a run trains: in steps, or in as many as it takes to go through records so often.
///
/// # Errors
/// [`Failure`] for flags of pairs of answers that mean nothing to the data.
pub(super) fn training(
    args: &RunArgs,
    model: &Blueprint,
    defaults: &Defaults,
    has_records: bool,
) -> Result<TrainingConfig, Failure> {
    let of_records = defaults.epochs.filter(|_| args.steps.is_none());
    let epochs = args.epochs.or(of_records);
    Ok(TrainingConfig {
        steps: args.steps.unwrap_or(defaults.steps),
        epochs: epochs.map(|count| Epochs {
            count,
            warmup_is_said: args.warmup.is_some(),
        }),
        batch: args.batch.unwrap_or(defaults.batch),
        seq: args.seq.unwrap_or(model.max_length().min(defaults.seq)),
        size: match model {
            Blueprint::Text(_) => None,
            Blueprint::Images(classifier) => Some(classifier.size),
        },
        accumulate: args.accumulate.unwrap_or(1),
        precision: args.precision.unwrap_or_default(),
        seed: args.seed.unwrap_or(0),
        label_smoothing: args.preference.cross_entropy_smoothing(),
        preference: args.preference.config(has_records)?,
    })
}

/// That a run's length is said once.
pub(super) fn check_length(args: &RunArgs) -> Result<(), Failure> {
    let Some(epochs) = args.epochs else {
        return Ok(());
    };
    if args.steps.is_some() {
        let message = "--steps and --epochs both say how long the run is";
        return Err(Failure::usage(message).hint("leave one of them out"));
    }
    check_epochs(Some(epochs))
}

pub(super) fn check_epochs(epochs: Option<f64>) -> Result<(), Failure> {
    match epochs {
        Some(epochs) if !(epochs > 0.0 && epochs <= 1e6) => {
            let message = format!("`epochs` is {epochs}, must be above 0 and at most 1000000");
            Err(Failure::usage(message))
        }
        _ => Ok(()),
    }
}
