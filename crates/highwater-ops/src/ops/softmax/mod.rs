//! Softmax over a dimension: `softmax` and `softmax_backward`.

pub(crate) mod cpu;
mod reference;

use crate::kernels::lines::{line_rejects, line_samples, lines_of};
use crate::kernels::pointwise::cost;
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients::line_sum;
use crate::{Entry, Fill, Mul, Sub};
use highwater_graph::{Backward, Cost, Op, OpError, Operand, Spec};
use smallvec::SmallVec;
use std::hash::Hasher;
use std::marker::PhantomData;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SOFTMAX, SOFTMAX_BACKWARD];

/// `y_i = exp(x_i - max x) / sum_j exp(x_j - max x)` along a dimension.
///
/// As `torch.softmax(x, dim)`; a line of minus infinity alone gives NaN. One float tensor of any layout;
/// the result is row-major. Exponentials and sums are `f32` in lanes of a fixed width. One pass; in
/// place. Backward reads the output, not the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Softmax {
    /// The dimension.
    pub dim: usize,
}

/// The gradient of [`Softmax`], whose output is `y`: `y (g - sum_j g_j y_j)` of inputs `g`, which may be
/// overwritten, and `y`, of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftmaxBackward {
    /// The dimension.
    pub dim: usize,
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 1)?;
        lines_of(self.name(), inputs, self.dim)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 14.0)
    }

    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) else {
            return Ok(());
        };
        let output = backward.output(0);
        let grad = backward.emit_one(SoftmaxBackward { dim: self.dim }, &[grad, output])?;
        backward.set(0, grad);
        Ok(())
    }
}

impl Op for SoftmaxBackward {
    fn name(&self) -> &'static str {
        "softmax_backward"
    }

    fn hash_attributes(&self, hasher: &mut dyn Hasher) {
        hasher.write_usize(self.dim);
    }

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(self.name(), inputs, 2)?;
        lines_of(self.name(), inputs, self.dim)
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        cost(inputs, outputs, 4.0)
    }

    /// Of the gradient `u`: for `g` it is what this operation makes of `u`, for `y` it is
    /// `u (g - sum g y) - g sum u y`.
    fn backward(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(u) = backward.grad(0) else {
            return Ok(());
        };
        let (g, y) = (backward.input(0), backward.input(1));
        if backward.needs(0) {
            let grad = backward.emit_one(*self, &[u.clone(), y.clone()])?;
            backward.set(0, grad);
        }
        if backward.needs(1) {
            let mut dot = |x: &Operand| {
                let product = backward.emit_one(Mul, &[x.clone(), y.clone()])?;
                line_sum(backward, product, self.dim)
            };
            let (of_g, of_u) = (dot(&g)?, dot(&u)?);
            let left = backward.emit_one(Sub, &[g.clone(), of_g])?;
            let left = backward.emit_one(Mul, &[u, left])?;
            let right = backward.emit_one(Mul, &[g, of_u])?;
            let grad = backward.emit_one(Sub, &[left, right])?;
            backward.set(1, grad);
        }
        Ok(())
    }
}

const SOFTMAX: Entry = Entry {
    name: "softmax",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::SoftmaxKernel::<T>(PhantomData); Precise::new(reference::reference)
    },
    reference: reference::reference,
    samples: || line_samples(|dim| Softmax { dim }, &[Fill::Normal(2.0)]),
    rejects: || line_rejects(|dim| Softmax { dim }, 1),
};

const SOFTMAX_BACKWARD: Entry = Entry {
    name: "softmax_backward",
    rows: rows_of_floats! {
        T: [T] -> [T]; cpu::BackwardKernel::<T>(PhantomData); Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: || {
        line_samples(
            |dim| SoftmaxBackward { dim },
            &[Fill::Normal(1.0), Fill::Uniform(0.0, 0.05)],
        )
    },
    rejects: || line_rejects(|dim| SoftmaxBackward { dim }, 2),
};
