//! AdamW.

use super::adam;
use super::formats::{Master, Moments};
use super::groups::Groups;
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

/// Settings of a parameter group, with PyTorch's defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamWOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the two moments.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Whether to divide by the largest second moment so far, which is a third moment. Settled when the
    /// optimizer is made.
    pub amsgrad: bool,
    /// Whether the objective is to grow.
    pub maximize: bool,
    /// What updates of parameters in half precision are added to; `None` is [`Master::Split`] for `BF16` and
    /// [`Master::F32`] for `F16`. Settled when the optimizer is made; for parameters in `F32` it is nothing.
    pub master: Option<Master>,
    /// How moments are held. Settled when the optimizer is made.
    pub moments: Moments,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
            amsgrad: false,
            maximize: false,
            master: None,
            moments: Moments::F32,
        }
    }
}

/// Adam with decoupled weight decay (Loshchilov & Hutter 2019), as `torch.optim.AdamW`. Each
/// parameter has two moments of its own size, `exp_avg` and `exp_avg_sq`, with `amsgrad` a third one,
/// `max_exp_avg_sq`.
pub type AdamW = Groups<AdamWOptions>;

adam::rule!(AdamWOptions, decoupled: true);
