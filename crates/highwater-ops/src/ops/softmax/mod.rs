//! Softmax over a dimension: `softmax` and `softmax_backward`.

pub(crate) mod cpu;
mod reference;

use crate::kernels::lines::{LineKernel, PairKernel, line_ops, line_rejects, line_samples};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients::{self, line_sum};
use crate::{Entry, Fill, Mul, Sub};
use highwater_graph::{Backward, OpError, Operand};

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

line_ops! {
    Softmax: "softmax", 1, 14.0, gradient;
    SoftmaxBackward: "softmax_backward", 2, 4.0, second;
}

fn gradient(op: Softmax, backward: &mut Backward<'_>) -> Result<(), OpError> {
    gradients::from_output(backward, SoftmaxBackward { dim: op.dim })
}

/// Of the gradient `u`: for `g` it is what this operation makes of `u`, for `y` it is
/// `u (g - sum g y) - g sum u y`.
fn second(op: SoftmaxBackward, backward: &mut Backward<'_>) -> Result<(), OpError> {
    let Some(u) = backward.grad(0) else {
        return Ok(());
    };
    let (g, y) = (backward.input(0), backward.input(1));
    if backward.needs(0) {
        let grad = backward.emit_one(op, &[u.clone(), y.clone()])?;
        backward.set(0, grad);
    }
    if backward.needs(1) {
        let mut dot = |x: &Operand| {
            let product = backward.emit_one(Mul, &[x.clone(), y.clone()])?;
            line_sum(backward, product, op.dim)
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

const SOFTMAX: Entry = Entry {
    name: "softmax",
    rows: rows_of_floats! {
        T: [T] -> [T]; LineKernel::<Softmax, T>::NEW; Precise::new(reference::reference)
    },
    reference: reference::reference,
    samples: || line_samples(|dim| Softmax { dim }, &[Fill::Normal(2.0)]),
    rejects: || line_rejects(|dim| Softmax { dim }, 1),
};

const SOFTMAX_BACKWARD: Entry = Entry {
    name: "softmax_backward",
    rows: rows_of_floats! {
        T: [T] -> [T]; PairKernel::<SoftmaxBackward, T>::NEW; Precise::new(reference::backward)
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
