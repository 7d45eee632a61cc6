//! The plain references.

use crate::Array;
use highwater_graph::Op;

/// Applies `f` to every row.
fn by_rows(inputs: &[Array], f: impl Fn(&[&[f64]]) -> Vec<f64>) -> Vec<Array> {
    let width = inputs[0].shape.last().copied().unwrap_or(1).max(1);
    let rows = inputs[0].data.len() / width;
    let data = (0..rows).flat_map(|row| {
        let rows: Vec<&[f64]> = inputs
            .iter()
            .map(|input| &input.data[row * width..][..width])
            .collect();
        f(&rows)
    });
    let data = data.collect();
    vec![Array::new(inputs[0].dtype, inputs[0].shape.clone(), data)]
}

pub(super) fn reference(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    by_rows(inputs, |rows| {
        let max = rows[0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exps: Vec<f64> = rows[0].iter().map(|x| (x - max).exp()).collect();
        let sum: f64 = exps.iter().sum();
        exps.iter().map(|e| e / sum).collect()
    })
}

pub(super) fn backward(_op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    by_rows(inputs, |rows| {
        let (g, y) = (rows[0], rows[1]);
        let dot: f64 = g.iter().zip(y).map(|(g, y)| g * y).sum();
        g.iter().zip(y).map(|(g, y)| y * (g - dot)).collect()
    })
}
