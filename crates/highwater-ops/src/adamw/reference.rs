//! The plain reference.

use super::AdamW;
use crate::{Array, formats};
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &AdamW = op.downcast().expect("the row's own operation");
    if !op.formats.is_plain() {
        return in_formats(op, inputs);
    }
    let [p, m, v, g] = inputs else {
        panic!("inferred inputs")
    };
    let (mut p, mut m, mut v) = (p.clone(), m.clone(), v.clone());
    let correction1 = 1.0 - op.beta1.powf(op.step as f64);
    let correction2 = 1.0 - op.beta2.powf(op.step as f64);
    for (i, &g) in g.data.iter().enumerate() {
        p.data[i] *= 1.0 - op.lr * op.weight_decay;
        m.data[i] = op.beta1 * m.data[i] + (1.0 - op.beta1) * g;
        v.data[i] = op.beta2 * v.data[i] + (1.0 - op.beta2) * g * g;
        let denominator = v.data[i].sqrt() / correction2.sqrt() + op.eps;
        p.data[i] -= op.lr / correction1 * m.data[i] / denominator;
    }
    vec![p, m, v]
}

fn in_formats(op: &AdamW, inputs: &[Array]) -> Vec<Array> {
    let correction1 = 1.0 - op.beta1.powf(op.step as f64);
    let correction2 = 1.0 - op.beta2.powf(op.step as f64);
    let keep = (1.0 - op.lr * op.weight_decay) as f32;
    let (beta2, eps) = (op.beta2 as f32, op.eps as f32);
    formats::reference::update(&op.formats, inputs, &[true, false], |p, moments, g| {
        let [m, v] = moments else {
            panic!("two moments")
        };
        *m += (1.0 - op.beta1) as f32 * (g - *m);
        *v = beta2 * *v + (1.0 - op.beta2) as f32 * (g * g);
        let denominator = v.sqrt() * correction2.sqrt().recip() as f32 + eps;
        *p = keep * *p - (op.lr / correction1) as f32 * *m / denominator;
    })
}
