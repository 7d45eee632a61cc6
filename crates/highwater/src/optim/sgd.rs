//! Stochastic gradient descent.

use super::formats::{Master, Moments};
use super::groups::{Groups, Rule};
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

/// Settings of SGD, with PyTorch's defaults and names.
#[derive(Debug, Clone, PartialEq)]
pub struct SgdOptions {
    /// Learning rate.
    pub lr: f64,
    /// Momentum; 0 needs no buffer.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
    /// Whether the objective is to grow.
    pub maximize: bool,
    /// What updates of parameters in half precision are added to; `None` is [`Master::Split`] for `BF16` and
    /// [`Master::F32`] for `F16`. Settled when the optimizer is made; for parameters in `F32` it is nothing.
    pub master: Option<Master>,
    /// How moments are held. Settled when the optimizer is made.
    pub moments: Moments,
}

impl Default for SgdOptions {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
            master: None,
            moments: Moments::F32,
        }
    }
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
