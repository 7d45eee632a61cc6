//! The plain reference.

use super::Sgd;
use crate::Array;
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Sgd = op.downcast().expect("the row's own operation");
    let mut cells = inputs[..inputs.len() - 1].to_vec();
    for (i, &g) in inputs[inputs.len() - 1].data.iter().enumerate() {
        let mut g = g + op.weight_decay * cells[0].data[i];
        if let Some(buffer) = cells.get_mut(1) {
            buffer.data[i] = if op.first {
                g
            } else {
                op.momentum * buffer.data[i] + (1.0 - op.dampening) * g
            };
            g = if op.nesterov {
                g + op.momentum * buffer.data[i]
            } else {
                buffer.data[i]
            };
        }
        cells[0].data[i] -= op.lr * g;
    }
    cells
}
