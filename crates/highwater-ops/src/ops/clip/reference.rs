//! The plain references.

use super::ClipCoefficient;
use crate::Array;
use highwater_graph::Op;

pub(super) fn grad_norm(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let squares = inputs.iter().flat_map(|array| &array.data).map(|x| x * x);
    vec![Array::from_fn([], |_| squares.clone().sum::<f64>().sqrt())]
}

pub(super) fn clip_coefficient(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &ClipCoefficient = op.downcast().expect("the row's own operation");
    let coefficient = op.max_norm / (inputs[0].data[0] + 1e-6);
    vec![Array::from_fn([], |_| {
        if coefficient > 1.0 { 1.0 } else { coefficient }
    })]
}
