//! RMSprop.

use super::formats::{Master, Moments};
use super::groups::Groups;
use super::options::options;
use super::rule::Rule;
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

options! {
    /// Settings of a parameter group, with PyTorch's defaults and names.
    RmsPropOptions {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// Decay of the squares' average.
        alpha: f64 = 0.99,
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// L2 penalty: so much of the parameter is added to its gradient.
        weight_decay: f64 = 0.0,
        /// Momentum; 0 needs no buffer. Whether there is any is settled when the optimizer is made.
        momentum: f64 = 0.0,
        /// Whether gradients are divided by their standard deviation. Settled when the optimizer is made.
        centered: bool = false,
        /// Whether the objective is to grow.
        maximize: bool = false,
    } master, moments
}

/// RMSprop (Hinton 2012), as `torch.optim.RMSprop`. Each parameter has a moment `square_avg`, with momentum
/// `momentum_buffer`, and `grad_avg` if centered.
pub type RmsProp = Groups<RmsPropOptions>;

impl RmsPropOptions {
    fn op(&self) -> highwater_ops::RmsProp {
        highwater_ops::RmsProp {
            lr: self.lr,
            alpha: self.alpha,
            eps: self.eps,
            weight_decay: self.weight_decay,
            momentum: self.momentum,
            centered: self.centered,
            maximize: self.maximize,
            formats: Formats::PLAIN,
        }
    }
}

impl Rule for RmsPropOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("alpha", self.alpha, f64::INFINITY),
            ("eps", self.eps, f64::INFINITY),
            ("weight_decay", self.weight_decay, f64::INFINITY),
            ("momentum", self.momentum, f64::INFINITY),
        ]
    }

    fn conflict(&self) -> Option<&'static str> {
        let coded = self.centered && self.moments == Moments::Int8;
        coded.then_some(
            "RMSprop that is centered takes the difference of two moments, of which codes of 8 bits leave              nothing: take Moments::F32",
        )
    }

    fn moments(&self) -> &'static [&'static str] {
        self.op().moments()
    }

    fn formats(&self) -> (Option<Master>, Moments) {
        (self.master, self.moments)
    }

    fn update(&self, _steps: u64, formats: Formats) -> Arc<dyn Op> {
        Arc::new(highwater_ops::RmsProp {
            formats,
            ..self.op()
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
