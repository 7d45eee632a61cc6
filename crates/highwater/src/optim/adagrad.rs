//! Adagrad.

use super::formats::{Master, Moments};
use super::groups::{Groups, Rule};
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

/// Settings of a parameter group, with PyTorch's defaults and names.
#[derive(Debug, Clone, PartialEq)]
pub struct AdagradOptions {
    /// Learning rate.
    pub lr: f64,
    /// What the rate falls by with each step.
    pub lr_decay: f64,
    /// L2 penalty: so much of the parameter is added to its gradient.
    pub weight_decay: f64,
    /// What the sum of squares starts from.
    pub initial_accumulator_value: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Whether the objective is to grow.
    pub maximize: bool,
    /// What updates of parameters in half precision are added to; `None` is [`Master::Split`] for `BF16` and
    /// [`Master::F32`] for `F16`. Settled when the optimizer is made; for parameters in `F32` it is nothing.
    pub master: Option<Master>,
    /// How moments are held. Settled when the optimizer is made.
    pub moments: Moments,
}

impl Default for AdagradOptions {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
            master: None,
            moments: Moments::F32,
        }
    }
}

/// Adagrad (Duchi et al. 2011), as `torch.optim.Adagrad`. Each parameter has the `sum` of its gradients'
/// squares.
pub type Adagrad = Groups<AdagradOptions>;

impl Rule for AdagradOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        let initial = self.initial_accumulator_value;
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("lr_decay", self.lr_decay, f64::INFINITY),
            ("weight_decay", self.weight_decay, f64::INFINITY),
            ("initial_accumulator_value", initial, f64::INFINITY),
            ("eps", self.eps, f64::INFINITY),
        ]
    }

    fn moments(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn formats(&self) -> (Option<Master>, Moments) {
        (self.master, self.moments)
    }

    fn update(&self, steps: u64, formats: Formats) -> Arc<dyn Op> {
        Arc::new(highwater_ops::Adagrad {
            lr: self.lr,
            lr_decay: self.lr_decay,
            weight_decay: self.weight_decay,
            initial: self.initial_accumulator_value,
            eps: self.eps,
            maximize: self.maximize,
            step: steps + 1,
            formats,
        })
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}
