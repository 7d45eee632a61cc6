//! From flags to the settings of an optimizer.

use super::defaults::Defaults;
use crate::args::Settings;
use crate::config::{Method, ModelSource, Moments, OptimizerConfig, OptimizerKind, Schedule};
use crate::error::Failure;

/// The settings of the optimizer.
///
/// # Errors
/// [`Failure`] for flags that mean nothing to it.
pub(super) fn optimizer(
    settings: &Settings,
    (source, steps): (&ModelSource, u64),
    defaults: &Defaults,
) -> Result<OptimizerConfig, Failure> {
    let kind = settings.optimizer.unwrap_or(OptimizerKind::Adamw);
    let foreign: &[(&str, Option<f64>)] = match kind {
        OptimizerKind::Adamw => &[("momentum", settings.momentum)],
        OptimizerKind::Sgd => &[
            ("beta1", settings.beta1),
            ("beta2", settings.beta2),
            ("eps", settings.eps),
        ],
    };
    if let Some((flag, _)) = foreign.iter().find(|(_, value)| value.is_some()) {
        let (kind, other) = match kind {
            OptimizerKind::Adamw => ("adamw", "sgd"),
            OptimizerKind::Sgd => ("sgd", "adamw"),
        };
        return Err(
            Failure::usage(format!("--{flag} has no effect with {kind}"))
                .hint(format!("remove it, or use --optimizer {other}")),
        );
    }
    let (method, weight_decay) = match kind {
        OptimizerKind::Adamw => {
            let method = Method::Adamw {
                beta1: settings.beta1.unwrap_or(0.9),
                beta2: settings.beta2.unwrap_or(defaults.beta2),
                eps: settings.eps.unwrap_or(1e-8),
            };
            (method, defaults.weight_decay)
        }
        OptimizerKind::Sgd => {
            let momentum = settings.momentum.unwrap_or(0.0);
            (Method::Sgd { momentum }, 0.0)
        }
    };
    let has_moments = !matches!(method, Method::Sgd { momentum } if momentum <= 0.0);
    if settings.moments == Some(Moments::Int8) && !has_moments {
        let message = "--moments int8 has no effect: sgd without momentum has no moments";
        return Err(Failure::usage(message).hint("remove it, or use --momentum 0.9"));
    }
    // As transformers' Trainer has it, for models that have learnt something.
    let clip = if source.brings_weights() { 1.0 } else { 0.0 };
    Ok(OptimizerConfig {
        lr: settings.lr.unwrap_or(defaults.lr),
        warmup: settings.warmup.unwrap_or(steps / 20),
        schedule: settings.schedule.unwrap_or(Schedule::Cosine),
        weight_decay: settings.weight_decay.unwrap_or(weight_decay),
        decay: settings.decay.unwrap_or_default(),
        clip: Some(settings.clip.unwrap_or(clip)).filter(|&clip| clip != 0.0),
        master: settings.master,
        moments: settings.moments.unwrap_or_default(),
        method,
    })
}
