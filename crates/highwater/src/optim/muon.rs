//! Muon.

use super::direction::Direction;
use super::formats::{Master, Moments};
use super::groups::{Groups, Rule};
use super::options::options;
use crate::Result;
use highwater_graph::{DType, Op, Operand, Shape};
use highwater_ops::{Add, DivAtLeast, Formats, GradNorm, MatMul, MulScalar, Sgd};
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

    fn moments(&self) -> &'static [&'static str] {
        &[]
    }

    fn formats(&self) -> (Option<Master>, Moments) {
        (self.master, Moments::F32)
    }

    fn statistics(&self, shape: &Shape) -> Vec<(&'static str, Shape)> {
        vec![("momentum_buffer", shape.clone())]
    }

    fn direction(&self, of: &mut Direction<'_>) -> Result<Operand> {
        let gradient = of.gradient().clone();
        let mut momentum = of.lerp(0, &gradient, 1.0 - self.momentum)?;
        if self.nesterov {
            let share = |value| MulScalar { value };
            let new = of.apply(share(1.0 - self.momentum), &[&gradient])?;
            let old = of.apply(share(self.momentum), &[&momentum])?;
            momentum = of.apply(Add, &[&new, &old])?;
        }
        let orthogonal = self.orthogonalised(of, momentum)?;
        let orthogonal = of.cast(orthogonal, gradient.spec.dtype)?;
        let value = self.adjust_lr.ratio(gradient.shape());
        of.apply(MulScalar { value }, &[&orthogonal])
    }

    fn update(&self, _steps: u64, formats: Formats) -> Arc<dyn Op> {
        Arc::new(Sgd {
            lr: self.lr,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: self.weight_decay,
            nesterov: false,
            maximize: false,
            first: false,
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
        self.momentum = momentum;
    }
}

impl MuonOptions {
    /// A matrix with its singular values made about 1, in `BF16`.
    fn orthogonalised(&self, of: &mut Direction<'_>, matrix: Operand) -> Result<Operand> {
        let (a, b, c) = self.ns_coefficients;
        let scaled = |value| MulScalar { value };
        let product = MatMul::default();
        let is_tall = matrix.shape()[0] > matrix.shape()[1];
        let matrix = of.cast(matrix, DType::BF16)?;
        let mut x = if is_tall {
            transposed(&matrix)?
        } else {
            matrix
        };
        let norm = of.apply(GradNorm, &[&x])?;
        let norm = of.cast(norm, DType::BF16)?;
        x = of.apply(DivAtLeast { least: self.eps }, &[&x, &norm])?;
        for _ in 0..self.ns_steps {
            let gram = of.apply(product, &[&x, &transposed(&x)?])?;
            let squared = of.apply(product, &[&gram, &gram])?;
            let squared = of.apply(scaled(c), &[&squared])?;
            let gram = of.apply(scaled(b), &[&gram])?;
            let polynomial = of.apply(Add, &[&gram, &squared])?;
            let more = of.apply(product, &[&polynomial, &x])?;
            let kept = of.apply(scaled(a), &[&x])?;
            x = of.apply(Add, &[&kept, &more])?;
        }
        if is_tall { transposed(&x) } else { Ok(x) }
    }
}

/// A matrix seen the other way around.
fn transposed(matrix: &Operand) -> Result<Operand> {
    let layout = matrix.spec.layout.transpose(0, 1);
    let none = || crate::Error::Internal("a matrix has two dimensions".into());
    Ok(matrix.with_layout(layout.ok_or_else(none)?))
}
