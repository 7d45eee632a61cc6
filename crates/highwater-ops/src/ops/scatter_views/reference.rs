//! The plain reference.

use super::ScatterViews;
use crate::Array;
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &ScatterViews = op.downcast().expect("the row's own operation");
    let mut out = Array::from_fn([op.numel], |_| 0.0);
    for (layout, gradient) in op.layouts.iter().zip(inputs) {
        for (position, g) in layout.positions().zip(&gradient.data) {
            out.data[position] += g;
        }
    }
    vec![out]
}
