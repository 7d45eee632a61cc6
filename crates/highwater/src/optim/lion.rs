//! Lion.

use super::formats::{Master, Moments};
use super::groups::Groups;
use super::options::options;
use super::rule::Rule;
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

options! {
    /// Settings of a parameter group, with the paper's defaults.
    LionOptions {
        /// Learning rate: a third to a tenth of AdamW's.
        lr: f64 = 1e-4,
        /// Share of the moment in the direction, and its decay.
        betas: (f64, f64) = (0.9, 0.99),
        /// Decoupled weight decay: three to ten times AdamW's.
        weight_decay: f64 = 0.0,
    } master, moments
}

/// Lion (Chen et al. 2023): steps by the signs of an average, with decoupled weight decay. Each parameter has
/// one moment, `exp_avg`. PyTorch has none; this is the one of the paper.
pub type Lion = Groups<LionOptions>;

impl Rule for LionOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("beta1", self.betas.0, 1.0),
            ("beta2", self.betas.1, 1.0),
            ("weight_decay", self.weight_decay, f64::INFINITY),
        ]
    }

    fn moments(&self) -> &'static [&'static str] {
        &["exp_avg"]
    }

    fn formats(&self) -> (Option<Master>, Moments) {
        (self.master, self.moments)
    }

    fn update(&self, _steps: u64, formats: Formats) -> Arc<dyn Op> {
        Arc::new(highwater_ops::Lion {
            lr: self.lr,
            beta1: self.betas.0,
            beta2: self.betas.1,
            weight_decay: self.weight_decay,
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
        self.betas.0 = momentum;
    }
}
