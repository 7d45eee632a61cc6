//! The plain references.

use super::{Softmax, SoftmaxBackward};
use crate::Array;
use crate::kernels::lines::by_lines;
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let dim = op.downcast().map_or(0, |op: &Softmax| op.dim);
    by_lines(inputs, dim, |rows| {
        let max = rows[0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exps: Vec<f64> = rows[0].iter().map(|x| (x - max).exp()).collect();
        let sum: f64 = exps.iter().sum();
        exps.iter().map(|e| e / sum).collect()
    })
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let dim = op.downcast().map_or(0, |op: &SoftmaxBackward| op.dim);
    by_lines(inputs, dim, |rows| {
        let (g, y) = (rows[0], rows[1]);
        let dot: f64 = g.iter().zip(y).map(|(g, y)| g * y).sum();
        g.iter().zip(y).map(|(g, y)| y * (g - dot)).collect()
    })
}
