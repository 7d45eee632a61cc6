//! AdamW.

use super::adam;
use super::formats::{Master, Moments};
use super::groups::Groups;
use super::options::options;
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

options! {
    /// Settings of a parameter group, with PyTorch's defaults.
    AdamWOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Decay rates of the two moments.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// Decoupled weight decay.
        weight_decay: f64 = 1e-2,
        /// Whether to divide by the largest second moment so far, which is a third moment. Settled when the
        /// optimizer is made.
        amsgrad: bool = false,
        /// Whether the objective is to grow.
        maximize: bool = false,
    } master, moments
}

/// Adam with decoupled weight decay (Loshchilov & Hutter 2019), as `torch.optim.AdamW`. Each
/// parameter has two moments of its own size, `exp_avg` and `exp_avg_sq`, with `amsgrad` a third one,
/// `max_exp_avg_sq`.
pub type AdamW = Groups<AdamWOptions>;

adam::rule!(AdamWOptions, decoupled: true);
