//! Adafactor.

use super::direction::Direction;
use super::formats::{Master, Moments};
use super::groups::Groups;
use super::options::options;
use super::rule::{Rule, plain_update};
use crate::Result;
use crate::tensor::Tensor;
use highwater_graph::{DType, Op, Shape};
use highwater_ops::{DivAtLeast, DivRootAtLeast, FactoredScale, Formats, GradNorm};
use std::sync::Arc;

options! {
    /// Settings of a parameter group, with PyTorch's defaults and names.
    AdafactorOptions {
        /// Learning rate: the most that a relative step is.
        lr: f64 = 1e-2,
        /// The power of the step's number that is the share of new squares: below 0.
        beta2_decay: f64 = -0.8,
        /// The least of variances (`None`: the difference of 1 and the next number of the parameter's dtype), and
        /// the least root mean square of a parameter.
        eps: (Option<f64>, f64) = (None, 1e-3),
        /// The root mean square of a direction from which on it is clipped.
        d: f64 = 1.0,
        /// Decoupled weight decay.
        weight_decay: f64 = 0.0,
        /// Whether the objective is to grow.
        maximize: bool = false,
    } master
}

/// Adafactor (Shazeer & Stern 2018), as `torch.optim.Adafactor`: of the squares of a matrix's gradients only
/// averages of rows and columns are kept, `row_var` and `col_var`, over the last two dimensions; of a vector
/// all, `variance`. An update is several nodes, which take the gradient's size twice while it is made.
///
/// ```
/// use highwater::optim::{Adafactor, AdafactorOptions};
/// use highwater::{nn::Linear, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let layer = Linear::new(&engine, 4, 2, true)?;
/// let mut optimizer = Adafactor::new(layer.parameters(), AdafactorOptions::default())?;
/// layer.forward(&Tensor::randn(&engine, [3, 4])?)?.square()?.mean()?.backward()?;
/// optimizer.step()?;
/// let state = optimizer.state_dict();
/// let shapes: Vec<&[usize]> = state.iter().map(|(_, tensor)| tensor.dims()).collect();
/// assert_eq!(shapes, [&[2, 1][..], &[1, 4], &[2]]);
/// # Ok(())
/// # }
/// ```
pub type Adafactor = Groups<AdafactorOptions>;

impl AdafactorOptions {
    /// The largest step that is relative to a parameter, at a step from 1.
    fn rho(&self, step: u64) -> f64 {
        self.lr.min(1.0 / (step as f64).sqrt())
    }
}

impl Rule for AdafactorOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("-beta2_decay", -self.beta2_decay, f64::INFINITY),
            ("eps[0]", self.eps.0.unwrap_or(0.0), f64::INFINITY),
            ("eps[1]", self.eps.1, f64::INFINITY),
            ("d", self.d, f64::INFINITY),
            ("weight_decay", self.weight_decay, f64::INFINITY),
        ]
    }

    fn conflict(&self) -> Option<&'static str> {
        (self.d < 1.0).then_some("Adafactor's d is 1 at least")
    }

    fn formats(&self) -> (Option<Master>, Moments) {
        (self.master, Moments::F32)
    }

    fn statistics(&self, shape: &Shape) -> Vec<(&'static str, Shape)> {
        let rank = shape.rank();
        if rank < 2 {
            return vec![("variance", shape.clone())];
        }
        let without = |dim: usize| -> Shape {
            let extents = shape.iter().enumerate();
            let extents = extents.map(|(i, &extent)| if i == dim { 1 } else { extent });
            extents.collect()
        };
        vec![
            ("row_var", without(rank - 1)),
            ("col_var", without(rank - 2)),
        ]
    }

    fn direction(&self, of: &Direction<'_>) -> Result<Tensor> {
        let least = self.eps.0.unwrap_or(match of.parameter().dtype() {
            DType::F64 => f64::EPSILON,
            DType::BF16 => f64::from(half::bf16::EPSILON),
            DType::F16 => f64::from(half::f16::EPSILON),
            _ => f64::from(f32::EPSILON),
        });
        let weight = (of.step() as f64).powf(self.beta2_decay);
        let mut gradient = of.gradient().clone();
        if self.maximize {
            gradient = gradient.neg()?;
        }
        let squares = gradient.square()?;
        let variance = if gradient.dims().len() < 2 {
            of.lerp("variance", &squares, weight)?
        } else {
            let rows = of.lerp("row_var", &squares.mean_dims(&[-1], true)?, weight)?;
            let cols = of.lerp("col_var", &squares.mean_dims(&[-2], true)?, weight)?;
            let all = rows.mean_dims(&[-2], true)?;
            Tensor::apply_one(DivAtLeast { least }, &[&rows, &all])?.mul(&cols)?
        };
        let direction = Tensor::apply_one(DivRootAtLeast { least }, &[&gradient, &variance])?;
        let norms = [
            Tensor::apply_one(GradNorm, &[of.parameter()])?,
            Tensor::apply_one(GradNorm, &[&direction])?,
        ];
        let scale = FactoredScale {
            elements: direction.shape().numel(),
            eps: self.eps.1,
            d: self.d,
        };
        let scale = Tensor::apply_one(scale, &[&norms[0], &norms[1]])?;
        direction.mul(&scale)
    }

    fn update(&self, steps: u64, formats: Formats) -> Arc<dyn Op> {
        let rho = self.rho(steps + 1);
        // As `p (1 - lr weight_decay) - rho direction`.
        let share = if rho > 0.0 { self.lr / rho } else { 0.0 };
        plain_update(rho, self.weight_decay * share, formats)
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}
