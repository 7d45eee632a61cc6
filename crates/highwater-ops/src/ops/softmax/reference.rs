//! The plain references.

use super::{Softmax, SoftmaxBackward};
use crate::Array;
use crate::kernels::lines::Lines;
use highwater_graph::Op;

/// Applies `f` to every line along a dimension; one of the output is as long.
pub(crate) fn by_lines(
    inputs: &[Array],
    dim: usize,
    f: impl Fn(&[&[f64]]) -> Vec<f64>,
) -> Vec<Array> {
    let mut out = Array::new(
        inputs[0].dtype,
        inputs[0].shape.clone(),
        inputs[0].data.clone(),
    );
    let lines = Lines::new(&out.shape, dim);
    for line in 0..lines.outer * lines.inner {
        let start = line / lines.inner * lines.extent * lines.inner + line % lines.inner;
        let at = |i: usize| start + i * lines.inner;
        let of =
            |input: &Array| -> Vec<f64> { (0..lines.extent).map(|i| input.data[at(i)]).collect() };
        let of_inputs: Vec<Vec<f64>> = inputs.iter().map(of).collect();
        let of_inputs: Vec<&[f64]> = of_inputs.iter().map(Vec::as_slice).collect();
        for (i, x) in f(&of_inputs).into_iter().enumerate() {
            out.data[at(i)] = x;
        }
    }
    vec![out]
}

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
