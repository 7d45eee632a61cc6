//! Muon.

use super::direction::Direction;
use super::formats::{Master, Moments};
use super::groups::Groups;
use super::options::options;
use super::rule::{Rule, plain_update};
use crate::Result;
use crate::tensor::Tensor;
use highwater_graph::{DType, Op, Shape};
use highwater_ops::{DivAtLeast, Formats, GradNorm};
use std::sync::Arc;

/// By what [`Muon`] changes the learning rate of a matrix of `a` rows and `b` columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdjustLr {
    /// `sqrt(max(1, a / b))`, as Jordan's implementation.
    #[default]
    Original,
    /// `0.2 sqrt(max(a, b))`, so that AdamW's rates and weight decay serve.
    MatchRmsAdamW,
    /// `sqrt(a / b)`.
    SpectralUnclamped,
}

impl AdjustLr {
    fn ratio(self, shape: &Shape) -> f64 {
        let (a, b) = (shape[0].max(1) as f64, shape[1].max(1) as f64);
        match self {
            Self::Original => (a / b).max(1.0).sqrt(),
            Self::MatchRmsAdamW => 0.2 * a.max(b).sqrt(),
            Self::SpectralUnclamped => (a / b).sqrt(),
        }
    }
}

options! {
    /// Settings of a parameter group, with PyTorch's defaults and names.
    MuonOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Decoupled weight decay.
        weight_decay: f64 = 0.1,
        /// Momentum.
        momentum: f64 = 0.95,
        /// Nesterov's form of momentum.
        nesterov: bool = true,
        /// Coefficients of the polynomial that each iteration applies to the singular values.
        ns_coefficients: (f64, f64, f64) = (3.4445, -4.7750, 2.0315),
        /// The least norm that a direction is divided by.
        eps: f64 = 1e-7,
        /// Iterations.
        ns_steps: usize = 5,
        /// How the rate follows the shape.
        adjust_lr: AdjustLr = AdjustLr::Original,
    } master
}

/// Muon (Jordan 2024), as `torch.optim.Muon`: steps by the momentum of a matrix with its singular values made
/// about 1, by Newton and Schulz's iteration in `BF16`. For the matrices of hidden layers alone: give
/// embeddings, heads, vectors and kernels of convolutions to an [`AdamW`](super::AdamW). Each matrix has a
/// `momentum_buffer`. An update is products in the step's graph, three for each iteration; they take about
/// three times the matrix in `BF16`.
///
/// ```
/// use highwater::optim::{AdamW, AdamWOptions, Muon, MuonOptions};
/// use highwater::{nn::Linear, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let layer = Linear::new(&engine, 8, 4, true)?;
/// let is_matrix = |parameter: &Parameter| parameter.shape().rank() == 2;
/// let (matrices, others) = layer.parameters().into_iter().partition(is_matrix);
/// let mut muon = Muon::new(matrices, MuonOptions { lr: 0.02, ..Default::default() })?;
/// let mut adamw = AdamW::new(others, AdamWOptions::default())?;
/// layer.forward(&Tensor::randn(&engine, [3, 8])?)?.square()?.mean()?.backward()?;
/// muon.step()?;
/// adamw.step()?;
/// # Ok(())
/// # }
/// ```
pub type Muon = Groups<MuonOptions>;

impl Rule for MuonOptions {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![
            ("lr", self.lr, f64::INFINITY),
            ("weight_decay", self.weight_decay, f64::INFINITY),
            ("momentum", self.momentum, f64::INFINITY),
            ("eps", self.eps, f64::INFINITY),
        ]
    }

    fn conflict(&self) -> Option<&'static str> {
        (self.ns_steps >= 100).then_some("Muon takes less than 100 iterations (ns_steps)")
    }

    fn refuses(&self, shape: &Shape) -> Option<&'static str> {
        (shape.rank() != 2).then_some(
            "Muon is for matrices: give parameters of other than two dimensions to AdamW",
        )
    }

    fn formats(&self) -> (Option<Master>, Moments) {
        (self.master, Moments::F32)
    }

    fn statistics(&self, shape: &Shape) -> Vec<(&'static str, Shape)> {
        vec![("momentum_buffer", shape.clone())]
    }

    fn direction(&self, of: &Direction<'_>) -> Result<Tensor> {
        let gradient = of.gradient();
        let mut momentum = of.lerp("momentum_buffer", gradient, 1.0 - self.momentum)?;
        if self.nesterov {
            let new = gradient.mul_scalar(1.0 - self.momentum)?;
            momentum = new.add(&momentum.mul_scalar(self.momentum)?)?;
        }
        let orthogonal = self.orthogonalised(&momentum)?.to_dtype(gradient.dtype())?;
        orthogonal.mul_scalar(self.adjust_lr.ratio(gradient.shape()))
    }

    fn update(&self, _steps: u64, formats: Formats) -> Arc<dyn Op> {
        plain_update(self.lr, self.weight_decay, formats)
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn set_momentum(&mut self, momentum: f64) {
        self.momentum = momentum;
    }
}

impl MuonOptions {
    /// A matrix with its singular values made about 1, in `BF16`.
    fn orthogonalised(&self, matrix: &Tensor) -> Result<Tensor> {
        let (a, b, c) = self.ns_coefficients;
        let is_tall = matrix.dims()[0] > matrix.dims()[1];
        let mut x = matrix.to_dtype(DType::BF16)?;
        if is_tall {
            x = x.transpose(0, 1)?;
        }
        let norm = Tensor::apply_one(GradNorm, &[&x])?.to_dtype(DType::BF16)?;
        x = Tensor::apply_one(DivAtLeast { least: self.eps }, &[&x, &norm])?;
        for _ in 0..self.ns_steps {
            let gram = x.matmul(&x.transpose(0, 1)?)?;
            let squared = gram.matmul(&gram)?.mul_scalar(c)?;
            let polynomial = gram.mul_scalar(b)?.add(&squared)?;
            let more = polynomial.matmul(&x)?;
            x = x.mul_scalar(a)?.add(&more)?;
        }
        if is_tall { x.transpose(0, 1) } else { Ok(x) }
    }
}
