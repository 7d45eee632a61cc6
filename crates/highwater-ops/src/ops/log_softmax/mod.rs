//! The logarithm of softmax over a dimension: `log_softmax` and `log_softmax_backward`.

mod cpu;
mod reference;

use crate::kernels::lines::{LineKernel, PairKernel, line_ops, line_rejects, line_samples};
use crate::kernels::rows::{Precise, rows_of_floats};
use crate::ops::gradients::{self, line_sum};
use crate::{Entry, Exp, Fill, Mul, Neg, Sub};
use highwater_graph::{Backward, DType, OpError};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[LOG_SOFTMAX, LOG_SOFTMAX_BACKWARD];

/// `y_i = x_i - max x - log sum_j exp(x_j - max x)` along a dimension.
///
/// As `torch.log_softmax(x, dim)`; a line of minus infinity alone gives NaN. One float tensor of any
/// layout; the result is row-major. Exponentials and sums are `f32` in lanes of a fixed width. One pass;
/// in place. Backward reads the output, not the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSoftmax {
    /// The dimension.
    pub dim: usize,
}

/// The gradient of [`LogSoftmax`], whose output is `y`: `g_i - exp(y_i) sum_j g_j` of inputs `g`, which
/// may be overwritten, and `y`, of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSoftmaxBackward {
    /// The dimension.
    pub dim: usize,
}

line_ops! {
    LogSoftmax: "log_softmax", 1, 14.0, gradient;
    LogSoftmaxBackward: "log_softmax_backward", 2, 14.0, second;
}

fn gradient(op: LogSoftmax, backward: &mut Backward<'_>) -> Result<(), OpError> {
    gradients::from_output(backward, LogSoftmaxBackward { dim: op.dim })
}

/// Of the gradient `u`: for `g` it is `u - sum u exp(y)`, for `y` it is `-u exp(y) sum g`.
fn second(op: LogSoftmaxBackward, backward: &mut Backward<'_>) -> Result<(), OpError> {
    let Some(u) = backward.grad(0) else {
        return Ok(());
    };
    let (g, y) = (backward.input(0), backward.input(1));
    let p = backward.emit_one(Exp, &[y])?;
    let weighed = backward.emit_one(Mul, &[u.clone(), p])?;
    if backward.needs(0) {
        let sum = line_sum(backward, weighed.clone(), op.dim)?;
        let grad = backward.emit_one(Sub, &[u, sum])?;
        backward.set(0, grad);
    }
    if backward.needs(1) {
        let sum = line_sum(backward, g, op.dim)?;
        let grad = backward.emit_one(Mul, &[weighed, sum])?;
        let grad = backward.emit_one(Neg, &[grad])?;
        backward.set(1, grad);
    }
    Ok(())
}

const LOG_SOFTMAX: Entry = Entry {
    name: "log_softmax",
    rows: rows_of_floats! {
        T: [T] -> [T]; LineKernel::<LogSoftmax, T>::NEW; Precise::new(reference::reference)
    },
    reference: reference::reference,
    samples: || {
        let mut samples = line_samples(|dim| LogSoftmax { dim }, &[Fill::Normal(2.0)]);
        for sample in &mut samples {
            // The sum of so many logarithms is too rough for finite differences.
            if sample.inputs[0].0.layout.numel() > 20_000 {
                sample.inputs[0].0.dtype = DType::BF16;
            }
        }
        samples
    },
    rejects: || line_rejects(|dim| LogSoftmax { dim }, 1),
};

const LOG_SOFTMAX_BACKWARD: Entry = Entry {
    name: "log_softmax_backward",
    rows: rows_of_floats! {
        T: [T] -> [T]; PairKernel::<LogSoftmaxBackward, T>::NEW; Precise::new(reference::backward)
    },
    reference: reference::backward,
    samples: || {
        let fills = [Fill::Normal(1.0), Fill::Uniform(-9.0, -3.0)];
        line_samples(|dim| LogSoftmaxBackward { dim }, &fills)
    },
    rejects: || line_rejects(|dim| LogSoftmaxBackward { dim }, 2),
};
