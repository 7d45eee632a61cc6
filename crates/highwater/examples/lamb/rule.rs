//! LAMB (You et al. 2020) as a rule of `highwater::optim`.

use highwater::optim::{Direction, Groups, Rule};
use highwater::{Result, Shape, Tensor};

/// Settings of a parameter group.
#[derive(Debug, Clone)]
pub(crate) struct LambOptions {
    /// Learning rate: how far each parameter goes for its own length.
    pub(crate) lr: f64,
    /// Decay rates of the two moments.
    pub(crate) betas: (f64, f64),
    /// Added to the denominator.
    pub(crate) eps: f64,
    /// Weight decay, which is part of the direction.
    pub(crate) weight_decay: f64,
}

impl Default for LambOptions {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-6,
            weight_decay: 0.0,
        }
    }
}

/// Adam's direction, scaled for each parameter by the ratio of the parameter's norm and its own.
pub(crate) type Lamb = Groups<LambOptions>;

impl Rule for LambOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("beta1", self.betas.0, 1.0),
            ("beta2", self.betas.1, 1.0),
            ("eps", self.eps, f64::INFINITY),
            ("weight_decay", self.weight_decay, f64::INFINITY),
        ]
    }

    fn statistics(&self, shape: &Shape) -> Vec<(&'static str, Shape)> {
        vec![("exp_avg", shape.clone()), ("exp_avg_sq", shape.clone())]
    }

    fn direction(&self, of: &Direction<'_>) -> Result<Tensor> {
        let (gradient, step) = (of.gradient(), of.step() as f64);
        let mean = of.lerp("exp_avg", gradient, 1.0 - self.betas.0)?;
        let square = of.lerp("exp_avg_sq", &gradient.square()?, 1.0 - self.betas.1)?;

        // Numbers that change are tensors, so that every step has the same plan.
        let mean = mean / of.number(1.0 - self.betas.0.powf(step))?;
        let square = square / of.number(1.0 - self.betas.1.powf(step))?;
        let adam = (mean? / (square?.sqrt()? + self.eps))?;
        let parameter = of.parameter().to_dtype(gradient.dtype())?;
        let update = (adam + (&parameter * self.weight_decay))?;

        // The ratio of the norms; one where either is zero.
        let (length, way) = (parameter.norm(2.0)?, update.norm(2.0)?);
        let both = length.gt_scalar(0.0)? & way.gt_scalar(0.0)?;
        let ratio = Tensor::where_(&both?, &(&length / &way)?, &of.number(1.0)?)?;
        update * ratio
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
