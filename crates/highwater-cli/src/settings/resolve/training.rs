//! From flags to how long and in which portions a run trains.

use super::defaults::{Defaults, RECORD_EPOCHS};
use crate::args::RunArgs;
use crate::config::{Epochs, TrainingConfig};
use crate::error::Failure;
use crate::model::Blueprint;

/// How long and how a run trains: by default `in_epochs`, or in steps.
pub(super) fn training(
    args: &RunArgs,
    model: &Blueprint,
    defaults: &Defaults,
    in_epochs: bool,
) -> TrainingConfig {
    let of_records = (in_epochs && args.steps.is_none()).then_some(RECORD_EPOCHS);
    let epochs = args.epochs.or(of_records);
    TrainingConfig {
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
        preference: None,
    }
}

/// That a run's length is said once.
pub(crate) fn check_length(args: &RunArgs) -> Result<(), Failure> {
    let Some(epochs) = args.epochs else {
        return Ok(());
    };
    if args.steps.is_some() {
        let message = "--steps and --epochs both say how long the run is";
        return Err(Failure::usage(message).hint("leave one of them out"));
    }
    check_epochs(Some(epochs))
}

pub(crate) fn check_epochs(epochs: Option<f64>) -> Result<(), Failure> {
    match epochs {
        Some(epochs) if !(epochs > 0.0 && epochs <= 1e6) => {
            let message = format!("`epochs` is {epochs}, must be above 0 and at most 1000000");
            Err(Failure::usage(message))
        }
        _ => Ok(()),
    }
}
