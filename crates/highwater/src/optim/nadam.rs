//! NAdam.

use super::direction::Direction;
use super::formats::{Master, Moments};
use super::groups::Groups;
use super::options::options;
use super::rule::{Rule, penalty_and_decay, plain_update};
use crate::Result;
use crate::tensor::Tensor;
use highwater_graph::{Op, Shape};
use highwater_ops::Formats;
use std::sync::Arc;

options! {
    /// Settings of a parameter group, with PyTorch's defaults and names.
    NAdamOptions {
        /// Learning rate.
        lr: f64 = 2e-3,
        /// Decay rates of the two moments.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// So much of the parameter is added to its gradient, or subtracted from it.
        weight_decay: f64 = 0.0,
        /// How fast the momentum grows to the first of the betas.
        momentum_decay: f64 = 4e-3,
        /// Whether `weight_decay` is that of AdamW, and not an L2 penalty.
        decoupled_weight_decay: bool = false,
        /// Whether the objective is to grow.
        maximize: bool = false,
    } master
}

/// NAdam (Dozat 2016), as `torch.optim.NAdam`: Adam with Nesterov's momentum. Each parameter has two moments of its
/// own size, `exp_avg` and `exp_avg_sq`. PyTorch's `mu_product` is computed from the number of the step, with the
/// betas as they are now.
pub type NAdam = Groups<NAdamOptions>;

impl NAdamOptions {
    /// The momentum of a step, from 1.
    fn mu(&self, step: u64) -> f64 {
        self.betas.0 * (1.0 - 0.5 * 0.96_f64.powf(step as f64 * self.momentum_decay))
    }

    /// The product of the momenta up to a step.
    fn mu_product(&self, step: u64) -> f64 {
        let mut product = 1.0;
        for step in 1..=step {
            product *= self.mu(step);
            // Subtracted from one, it is nothing from there on.
            if product < f64::EPSILON / 4.0 {
                break;
            }
        }
        product
    }
}

impl Rule for NAdamOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("beta1", self.betas.0, 1.0),
            ("beta2", self.betas.1, 1.0),
            ("eps", self.eps, f64::INFINITY),
            ("weight_decay", self.weight_decay, f64::INFINITY),
            ("momentum_decay", self.momentum_decay, f64::INFINITY),
        ]
    }

    fn formats(&self) -> (Option<Master>, Moments) {
        (self.master, Moments::F32)
    }

    fn statistics(&self, shape: &Shape) -> Vec<(&'static str, Shape)> {
        vec![("exp_avg", shape.clone()), ("exp_avg_sq", shape.clone())]
    }

    fn direction(&self, of: &Direction<'_>) -> Result<Tensor> {
        let (penalty, _) = penalty_and_decay(self.weight_decay, self.decoupled_weight_decay);
        let gradient = of.penalized(penalty, self.maximize)?;
        let (average, squares) = of.moments(&gradient, self.betas)?;
        let (mu, next, product) = (
            self.mu(of.step()),
            self.mu(of.step() + 1),
            self.mu_product(of.step()),
        );
        let now = of.number((1.0 - mu) / (1.0 - product))?;
        let ahead = of.number(next / (1.0 - product * next))?;
        let correction = of.number(of.correction(self.betas.1))?;
        let root = squares.div(&correction)?.sqrt()?.add_scalar(self.eps)?;
        let sum = gradient.mul(&now)?.add(&average.mul(&ahead)?)?;
        sum.div(&root)
    }

    fn update(&self, _steps: u64, formats: Formats) -> Arc<dyn Op> {
        let (_, decay) = penalty_and_decay(self.weight_decay, self.decoupled_weight_decay);
        plain_update(self.lr, decay, formats)
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
