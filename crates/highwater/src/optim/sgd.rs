//! Stochastic gradient descent.

use super::formats::{Master, Moments};
use super::groups::Groups;
use super::options::options;
use super::rule::Rule;
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

options! {
    /// Settings of SGD, with PyTorch's defaults and names.
    SgdOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Momentum; 0 needs no buffer.
        momentum: f64 = 0.0,
        /// Dampening of the momentum.
        dampening: f64 = 0.0,
        /// L2 penalty.
        weight_decay: f64 = 0.0,
        /// Nesterov's form of momentum.
        nesterov: bool = false,
        /// Whether the objective is to grow.
        maximize: bool = false,
    } master, moments
}

/// Stochastic gradient descent with optional momentum, as `torch.optim.SGD`. Whether there is
/// momentum is settled when the optimizer is made.
pub type Sgd = Groups<SgdOptions>;

impl Rule for SgdOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("momentum", self.momentum, f64::INFINITY),
            ("dampening", self.dampening, f64::INFINITY),
            ("weight_decay", self.weight_decay, f64::INFINITY),
        ]
    }

    fn conflict(&self) -> Option<&'static str> {
        let possible = !self.nesterov || self.momentum > 0.0 && self.dampening == 0.0;
        (!possible).then_some("Nesterov's momentum takes a momentum above 0 and a dampening of 0")
    }

    fn moments(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 {
            &[]
        } else {
            &["momentum_buffer"]
        }
    }

    fn formats(&self) -> (Option<Master>, Moments) {
        (self.master, self.moments)
    }

    fn update(&self, steps: u64, formats: Formats) -> Arc<dyn Op> {
        Arc::new(highwater_ops::Sgd {
            lr: self.lr,
            momentum: self.momentum,
            dampening: self.dampening,
            weight_decay: self.weight_decay,
            nesterov: self.nesterov,
            maximize: self.maximize,
            first: steps == 0,
            formats,
        })
    }

    fn goes_by_gradient(&self) -> bool {
        true
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn set_momentum(&mut self, momentum: f64) {
        // Whether there is any is settled.
        if self.momentum != 0.0 {
            self.momentum = momentum;
        }
    }
}
