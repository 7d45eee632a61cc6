//! The plain reference.

use super::Lion;
use crate::Array;
use crate::kernels::formats;
use highwater_graph::Op;

/// What a step adds, in the direction of a number: nothing in that of 0.
fn towards(direction: f64, lr: f64) -> f64 {
    if direction > 0.0 {
        lr
    } else if direction < 0.0 {
        -lr
    } else {
        0.0
    }
}

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Lion = op.downcast().expect("the row's own operation");
    if !op.formats.is_plain() {
        return in_formats(op, inputs);
    }
    let [p, m, g] = inputs else {
        panic!("inferred inputs")
    };
    let (mut p, mut m) = (p.clone(), m.clone());
    for (i, &g) in g.data.iter().enumerate() {
        let direction = op.beta1 * m.data[i] + (1.0 - op.beta1) * g;
        p.data[i] = p.data[i] * (1.0 - op.lr * op.weight_decay) - towards(direction, op.lr);
        m.data[i] = op.beta2 * m.data[i] + (1.0 - op.beta2) * g;
    }
    vec![p, m]
}

fn in_formats(op: &Lion, inputs: &[Array]) -> Vec<Array> {
    let keep = (1.0 - op.lr * op.weight_decay) as f32;
    let (beta1, beta2) = (op.beta1 as f32, op.beta2 as f32);
    formats::reference::update(&op.formats, inputs, &[true], |p, moments, g| {
        let m = &mut moments[0];
        let direction = beta1 * *m + (1.0 - op.beta1) as f32 * g;
        *p = keep * *p - towards(f64::from(direction), op.lr) as f32;
        *m = beta2 * *m + (1.0 - op.beta2) as f32 * g;
    })
}
