//! The plain references.

use super::{RmsNorm, RmsNormBackward};
use crate::Array;
use crate::ops::layer_norm::rows_and_width;
use highwater_graph::{Op, Shape};

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &RmsNorm = op.downcast().expect("rms_norm");
    let x = &inputs[0];
    let (rows, width) = rows_and_width(&x.shape);
    let mut y = x.clone();
    let mut rstd = Array::from_fn(&x.shape[..x.shape.rank() - 1], |_| 0.0);
    for row in 0..rows {
        let x = &x.data[row * width..][..width];
        let mean_square = x.iter().map(|x| x * x).sum::<f64>() / width as f64;
        rstd.data[row] = 1.0 / (mean_square + op.eps).sqrt();
        for (i, x) in x.iter().enumerate() {
            let weight = inputs.get(1).map_or(1.0, |weight| weight.data[i]);
            y.data[row * width + i] = x * rstd.data[row] * weight;
        }
    }
    vec![y, rstd]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &RmsNormBackward = op.downcast().expect("rms_norm_backward");
    let [g, x, rstd, ..] = inputs else {
        return Vec::new();
    };
    let (rows, width) = rows_and_width(&x.shape);
    let mut dx = x.clone();
    let mut dweight = Array::from_fn(Shape::from([width]), |_| 0.0);
    for row in 0..rows {
        let at = |i: usize| row * width + i;
        let hat = |i: usize| x.data[at(i)] * rstd.data[row];
        let scaled = |i: usize| {
            let weight = inputs.get(3).map_or(1.0, |weight| weight.data[i]);
            g.data[at(i)] * weight
        };
        let mean = (0..width).map(|i| scaled(i) * hat(i)).sum::<f64>() / width as f64;
        for i in 0..width {
            dx.data[at(i)] = rstd.data[row] * (scaled(i) - hat(i) * mean);
            dweight.data[i] += g.data[at(i)] * hat(i);
        }
    }
    let outputs = [dx, dweight].into_iter().zip(op.wanted);
    let wanted = outputs.filter(|&(_, wanted)| wanted);
    wanted.map(|(array, _)| array).collect()
}
