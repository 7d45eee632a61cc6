//! Adagrad.

use super::formats::{Master, Moments};
use super::groups::Groups;
use super::options::options;
use super::rule::Rule;
use highwater_graph::Op;
use highwater_ops::Formats;
use std::sync::Arc;

options! {
    /// Settings of a parameter group, with PyTorch's defaults and names.
    AdagradOptions {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// What the rate falls by with each step.
        lr_decay: f64 = 0.0,
        /// L2 penalty: so much of the parameter is added to its gradient.
        weight_decay: f64 = 0.0,
        /// What the sum of squares starts from.
        initial_accumulator_value: f64 = 0.0,
        /// Added to the denominator.
        eps: f64 = 1e-10,
        /// Whether the objective is to grow.
        maximize: bool = false,
    } master, moments
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

    fn goes_by_gradient(&self) -> bool {
        true
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}
