//! How the parameters change.

use clap::ValueEnum;
use highwater_models::Decay;
use serde::{Deserialize, Serialize};

use super::precision::{Master, Moments};
use super::schedule::Schedule;

/// How the parameters change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Highest learning rate.
    pub lr: f64,
    /// Steps in which it is reached.
    pub warmup: u64,
    /// How it goes on.
    pub schedule: Schedule,
    /// Weight decay.
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
    /// What the updates of weights in half precision are added to; weights are in `f32` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<Master>,
    /// How moments are held.
    #[serde(default, skip_serializing_if = "Moments::is_whole")]
    pub moments: Moments,
    /// The norm that gradients are clipped to; 0 in a file where they are not.
    #[serde(default, serialize_with = "or_zero", deserialize_with = "not_zero")]
    pub clip: Option<f64>,
    /// The rule of the update.
    pub method: Method,
}

#[expect(clippy::ref_option, reason = "as serde calls it")]
fn or_zero<S: serde::Serializer>(clip: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(clip.unwrap_or(0.0))
}

fn not_zero<'a, D: serde::Deserializer<'a>>(from: D) -> Result<Option<f64>, D::Error> {
    let clip = f64::deserialize(from)?;
    Ok(Some(clip).filter(|&clip| clip != 0.0))
}

/// The rule of the update, with what only it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Method {
    /// AdamW.
    Adamw {
        /// Decay of the first moment.
        beta1: f64,
        /// Decay of the second moment.
        beta2: f64,
        /// What is added to the divisor.
        eps: f64,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// Momentum.
        momentum: f64,
    },
}

/// The optimizers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OptimizerKind {
    /// AdamW.
    Adamw,
    /// Stochastic gradient descent.
    Sgd,
}
