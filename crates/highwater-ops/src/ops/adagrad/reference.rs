//! The plain reference.

use super::Adagrad;
use crate::Array;
use crate::kernels::formats;
use highwater_graph::Op;

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Adagrad = op.downcast().expect("the row's own operation");
    if !op.formats.is_plain() {
        return in_formats(op, inputs);
    }
    let [p, s, g] = inputs else {
        panic!("inferred inputs")
    };
    let (mut p, mut s) = (p.clone(), s.clone());
    for (i, &g) in g.data.iter().enumerate() {
        let g = op.sign() * g + op.weight_decay * p.data[i];
        let before = if op.step <= 1 { op.initial } else { s.data[i] };
        s.data[i] = before + g * g;
        p.data[i] -= op.rate() * g / (s.data[i].sqrt() + op.eps);
    }
    vec![p, s]
}

fn in_formats(op: &Adagrad, inputs: &[Array]) -> Vec<Array> {
    let (rate, eps) = (op.rate() as f32, op.eps as f32);
    formats::reference::update(&op.formats, inputs, &[false], |p, moments, g| {
        let s = &mut moments[0];
        let g = op.sign() as f32 * g + op.weight_decay as f32 * *p;
        if op.step <= 1 {
            *s = op.initial as f32;
        }
        *s += g * g;
        *p -= rate * (g / (s.sqrt() + eps));
    })
}
