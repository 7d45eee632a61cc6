//! The plain references.

use super::{LogSoftmax, LogSoftmaxBackward};
use crate::Array;
use crate::kernels::lines::by_lines;
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let dim = op.downcast().map_or(0, |op: &LogSoftmax| op.dim);
    by_lines(inputs, dim, |lines| {
        let max = lines[0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = lines[0].iter().map(|x| (x - max).exp()).sum();
        lines[0].iter().map(|x| x - max - sum.ln()).collect()
    })
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let dim = op.downcast().map_or(0, |op: &LogSoftmaxBackward| op.dim);
    by_lines(inputs, dim, |lines| {
        let (g, y) = (lines[0], lines[1]);
        let sum: f64 = g.iter().sum();
        g.iter().zip(y).map(|(g, y)| g - y.exp() * sum).collect()
    })
}
