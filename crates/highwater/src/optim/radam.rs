//! RAdam.

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
    RAdamOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Decay rates of the two moments.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// So much of the parameter is added to its gradient, or subtracted from it.
        weight_decay: f64 = 0.0,
        /// Whether `weight_decay` is that of AdamW, and not an L2 penalty.
        decoupled_weight_decay: bool = false,
        /// Whether the objective is to grow.
        maximize: bool = false,
    } master
}

/// RAdam (Liu et al. 2019), as `torch.optim.RAdam`: Adam that goes by the average of gradients alone while there are
/// too few squares for their variance to be known, which is for the first 5 steps with the default betas. Each
/// parameter has two moments of its own size, `exp_avg` and `exp_avg_sq`.
pub type RAdam = Groups<RAdamOptions>;

impl RAdamOptions {
    /// How much of Adam's step is taken at a step from 1; none while the variance is unknown.
    fn rectification(&self, step: u64) -> Option<f64> {
        let beta2 = self.betas.1;
        let most = 2.0 / (1.0 - beta2) - 1.0;
        let power = beta2.powf(step as f64);
        let length = most - 2.0 * step as f64 * power / (1.0 - power);
        let share = (length - 4.0) * (length - 2.0) * most;
        let of = (most - 4.0) * (most - 2.0) * length;
        (length > 5.0).then(|| (share / of).sqrt())
    }
}

impl Rule for RAdamOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("beta1", self.betas.0, 1.0),
            ("beta2", self.betas.1, 1.0),
            ("eps", self.eps, f64::INFINITY),
            ("weight_decay", self.weight_decay, f64::INFINITY),
        ]
    }

    fn formats(&self) -> (Option<Master>, Moments) {
        (self.master, Moments::F32)
    }

    fn statistics(&self, shape: &Shape) -> Vec<(&'static str, Shape)> {
        vec![("exp_avg", shape.clone()), ("exp_avg_sq", shape.clone())]
    }

    fn direction(&self, of: &Direction<'_>) -> Result<Tensor> {
        let (beta1, beta2) = self.betas;
        let (penalty, _) = penalty_and_decay(self.weight_decay, self.decoupled_weight_decay);
        let gradient = of.penalized(penalty, self.maximize)?;
        let (average, squares) = of.moments(&gradient, self.betas)?;
        let average = average.div(&of.number(of.correction(beta1))?)?;
        let Some(share) = self.rectification(of.step()) else {
            return Ok(average);
        };
        let factor = of.number(of.correction(beta2).sqrt() * share)?;
        let adaptive = factor.div(&squares.sqrt()?.add_scalar(self.eps)?)?;
        average.mul(&adaptive)
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
