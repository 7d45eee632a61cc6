//! The plain reference.

use super::AdamW;
use crate::Array;
use crate::kernels::formats;
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &AdamW = op.downcast().expect("the row's own operation");
    if !op.formats.is_plain() {
        return in_formats(op, inputs);
    }
    let mut cells = inputs[..inputs.len() - 1].to_vec();
    let correction1 = 1.0 - op.beta1.powf(op.step as f64);
    let correction2 = 1.0 - op.beta2.powf(op.step as f64);
    for (i, &g) in inputs[inputs.len() - 1].data.iter().enumerate() {
        let g = op.sign() * g + op.coupled() * cells[0].data[i];
        cells[0].data[i] *= op.keep();
        cells[1].data[i] = op.beta1 * cells[1].data[i] + (1.0 - op.beta1) * g;
        cells[2].data[i] = op.beta2 * cells[2].data[i] + (1.0 - op.beta2) * g * g;
        let mut v = cells[2].data[i];
        if let Some(most) = cells.get_mut(3) {
            most.data[i] = most.data[i].max(v);
            v = most.data[i];
        }
        let denominator = v.sqrt() / correction2.sqrt() + op.eps;
        cells[0].data[i] -= op.lr / correction1 * cells[1].data[i] / denominator;
    }
    cells
}

fn in_formats(op: &AdamW, inputs: &[Array]) -> Vec<Array> {
    let correction1 = 1.0 - op.beta1.powf(op.step as f64);
    let correction2 = 1.0 - op.beta2.powf(op.step as f64);
    let (keep, coupled, sign) = (op.keep() as f32, op.coupled() as f32, op.sign() as f32);
    let (beta2, eps) = (op.beta2 as f32, op.eps as f32);
    let signed = &[true, false, false][..op.moments().len()];
    formats::reference::update(&op.formats, inputs, signed, |p, moments, g| {
        let g = sign * g + coupled * *p;
        moments[0] += (1.0 - op.beta1) as f32 * (g - moments[0]);
        moments[1] = beta2 * moments[1] + (1.0 - op.beta2) as f32 * (g * g);
        let mut v = moments[1];
        if let Some(most) = moments.get_mut(2) {
            *most = most.max(v);
            v = *most;
        }
        let denominator = v.sqrt() * correction2.sqrt().recip() as f32 + eps;
        *p = keep * *p - (op.lr / correction1) as f32 * moments[0] / denominator;
    })
}
