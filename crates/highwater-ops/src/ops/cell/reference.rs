//! The plain references.

use super::LerpCell;
use crate::Array;
use highwater_graph::Op;

pub(super) fn accumulate(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let mut cell = inputs[0].clone();
    for (to, from) in cell.data.iter_mut().zip(&inputs[1].data) {
        *to += from;
    }
    vec![cell]
}

pub(super) fn assign(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    vec![inputs[1].clone()]
}

pub(super) fn lerp(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &LerpCell = op.downcast().expect("the row's own operation");
    let mut cell = inputs[0].clone();
    for (to, from) in cell.data.iter_mut().zip(&inputs[1].data) {
        *to += op.weight * (from - *to);
    }
    vec![cell]
}
