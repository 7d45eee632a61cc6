//! The plain reference.

use super::Sgd;
use crate::Array;
use crate::kernels::formats;
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Sgd = op.downcast().expect("the row's own operation");
    if !op.formats.is_plain() {
        return in_formats(op, inputs);
    }
    let mut cells = inputs[..inputs.len() - 1].to_vec();
    for (i, &g) in inputs[inputs.len() - 1].data.iter().enumerate() {
        let mut g = op.sign() * g + op.weight_decay * cells[0].data[i];
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

fn in_formats(op: &Sgd, inputs: &[Array]) -> Vec<Array> {
    let (lr, momentum) = (op.lr as f32, op.momentum as f32);
    let signed = vec![true; usize::from(op.has_buffer())];
    formats::reference::update(&op.formats, inputs, &signed, |p, moments, g| {
        let mut g = op.sign() as f32 * g + op.weight_decay as f32 * *p;
        if let Some(buffer) = moments.first_mut() {
            *buffer = if op.first {
                g
            } else {
                momentum * *buffer + (1.0 - op.dampening as f32) * g
            };
            g = if op.nesterov {
                g + momentum * *buffer
            } else {
                *buffer
            };
        }
        *p -= lr * g;
    })
}
