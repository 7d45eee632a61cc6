//! From flags to how long and in which portions a run trains.

use super::defaults::Defaults;
use crate::args::Settings;
use crate::config::{Epochs, TrainingConfig};
use crate::error::Failure;
use crate::model::Blueprint;

/// How long and how a run trains: in steps, or in as many as it takes to go through records so often.
///
/// # Errors
/// [`Failure`] for flags of pairs of answers that mean nothing to the data.
pub(super) fn training(
    settings: &Settings,
    model: &Blueprint,
    defaults: &Defaults,
    has_records: bool,
) -> Result<TrainingConfig, Failure> {
    let of_records = defaults.epochs.filter(|_| settings.steps.is_none());
    let epochs = settings.epochs.or(of_records);
    Ok(TrainingConfig {
        steps: settings.steps.unwrap_or(defaults.steps),
        epochs: epochs.map(|count| Epochs {
            count,
            warmup_is_said: settings.warmup.is_some(),
        }),
        batch: settings.batch.unwrap_or(defaults.batch),
        seq: settings.seq.unwrap_or(model.max_length().min(defaults.seq)),
        size: match model {
            Blueprint::Text(_) => None,
            Blueprint::Images(classifier) => Some(classifier.size),
        },
        accumulate: settings.accumulate.unwrap_or(1),
        precision: settings.precision.unwrap_or_default(),
        seed: settings.seed.unwrap_or(0),
        label_smoothing: settings.cross_entropy_smoothing(),
        preference: settings.preference_config(has_records)?,
    })
}

/// That a run's length is said once.
pub(super) fn check_length(settings: &Settings) -> Result<(), Failure> {
    if settings.epochs.is_some() && settings.steps.is_some() {
        let message = "--steps and --epochs both set the length of the run";
        return Err(Failure::usage(message).hint("remove one of them"));
    }
    Ok(())
}
