//! The plain reference.

use super::RmsProp;
use crate::Array;
use crate::kernels::formats;
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &RmsProp = op.downcast().expect("the row's own operation");
    if !op.formats.is_plain() {
        return in_formats(op, inputs);
    }
    let mut cells = inputs[..inputs.len() - 1].to_vec();
    let last = cells.len() - 1;
    for (i, &g) in inputs[inputs.len() - 1].data.iter().enumerate() {
        let g = op.sign() * g + op.weight_decay * cells[0].data[i];
        cells[1].data[i] = op.alpha * cells[1].data[i] + (1.0 - op.alpha) * g * g;
        let mut variance = cells[1].data[i];
        if op.centered {
            let a = op.alpha * cells[last].data[i] + (1.0 - op.alpha) * g;
            cells[last].data[i] = a;
            variance = (variance - a * a).max(0.0);
        }
        let mut step = g / (variance.sqrt() + op.eps);
        if op.momentum != 0.0 {
            step += op.momentum * cells[2].data[i];
            cells[2].data[i] = step;
        }
        cells[0].data[i] -= op.lr * step;
    }
    cells
}

fn in_formats(op: &RmsProp, inputs: &[Array]) -> Vec<Array> {
    let (alpha, rest) = (op.alpha as f32, (1.0 - op.alpha) as f32);
    let signed = &[false, true, true][..op.moments().len()];
    formats::reference::update(&op.formats, inputs, signed, |p, moments, g| {
        let g = op.sign() as f32 * g + op.weight_decay as f32 * *p;
        moments[0] = alpha * moments[0] + rest * (g * g);
        let mut variance = moments[0];
        if op.centered {
            let a = &mut moments[signed.len() - 1];
            *a += rest * (g - *a);
            variance = (variance - *a * *a).max(0.0);
        }
        let mut step = g / (variance.sqrt() + op.eps as f32);
        if op.momentum != 0.0 {
            step += op.momentum as f32 * moments[1];
            moments[1] = step;
        }
        *p -= op.lr as f32 * step;
    })
}
