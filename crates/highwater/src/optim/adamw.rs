//! AdamW.

use super::groups::{Groups, Rule};
use highwater_graph::Op;
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
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
        }
    }
}

/// Adam with decoupled weight decay (Loshchilov & Hutter 2019), as `torch.optim.AdamW`. Each
/// parameter has two moments of its own size.
pub type AdamW = Groups<AdamWOptions>;

impl Rule for AdamWOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("beta1", self.betas.0, 1.0),
            ("beta2", self.betas.1, 1.0),
            ("eps", self.eps, f64::INFINITY),
            ("weight_decay", self.weight_decay, f64::INFINITY),
        ]
    }

    fn moments(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn update(&self, steps: u64) -> Arc<dyn Op> {
        Arc::new(highwater_ops::AdamW {
            lr: self.lr,
            beta1: self.betas.0,
            beta2: self.betas.1,
            eps: self.eps,
            weight_decay: self.weight_decay,
            step: steps + 1,
            formats: highwater_ops::Formats::PLAIN,
        })
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}
