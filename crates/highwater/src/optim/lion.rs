//! Lion.

use super::formats::{Master, Moments};
use super::groups::{Groups, Rule};
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

/// Settings of a parameter group, with the paper's defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct LionOptions {
    /// Learning rate: a third to a tenth of AdamW's.
    pub lr: f64,
    /// Share of the moment in the direction, and its decay.
    pub betas: (f64, f64),
    /// Decoupled weight decay: three to ten times AdamW's.
    pub weight_decay: f64,
    /// What updates of parameters in half precision are added to; `None` is [`Master::Split`] for `BF16` and
    /// [`Master::F32`] for `F16`. Settled when the optimizer is made; for parameters in `F32` it is nothing.
    pub master: Option<Master>,
    /// How moments are held. Settled when the optimizer is made.
    pub moments: Moments,
}

impl Default for LionOptions {
    fn default() -> Self {
        Self {
            lr: 1e-4,
            betas: (0.9, 0.99),
            weight_decay: 0.0,
            master: None,
            moments: Moments::F32,
        }
    }
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
