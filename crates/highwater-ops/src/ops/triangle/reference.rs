//! The plain reference.

use super::Triangle;
use crate::Array;
use highwater_graph::Op;

pub(super) fn triangle(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Triangle = op.downcast().expect("the reference of this operation");
    let mut out = inputs[0].clone();
    let [.., height, width] = *inputs[0].shape.dims() else {
        return vec![out];
    };
    for (flat, x) in out.data.iter_mut().enumerate() {
        let (row, column) = ((flat / width % height) as i128, (flat % width) as i128);
        let on_diagonal = row + i128::from(op.diagonal);
        let kept = if op.upper {
            column >= on_diagonal
        } else {
            column <= on_diagonal
        };
        if !kept {
            *x = 0.0;
        }
    }
    vec![out]
}
