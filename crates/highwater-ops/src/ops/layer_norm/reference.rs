//! The plain references.

use super::{LayerNorm, LayerNormBackward, rows_and_width};
use crate::Array;
use highwater_graph::{Op, Shape};

pub(super) fn reference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &LayerNorm = op.downcast().expect("layer_norm");
    let x = &inputs[0];
    let (rows, width) = rows_and_width(&x.shape);
    let lead = &x.shape[..x.shape.rank() - 1];
    let mut y = x.clone();
    let mut mean = Array::from_fn(lead, |_| 0.0);
    let mut rstd = mean.clone();
    for row in 0..rows {
        let x = &x.data[row * width..][..width];
        let m = x.iter().sum::<f64>() / width as f64;
        let var = x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / width as f64;
        (mean.data[row], rstd.data[row]) = (m, 1.0 / (var + op.eps).sqrt());
        for (i, x) in x.iter().enumerate() {
            let weight = inputs.get(1).map_or(1.0, |weight| weight.data[i]);
            let bias = inputs.get(2).map_or(0.0, |bias| bias.data[i]);
            y.data[row * width + i] = (x - m) * rstd.data[row] * weight + bias;
        }
    }
    vec![y, mean, rstd]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &LayerNormBackward = op.downcast().expect("layer_norm_backward");
    let [g, x, mean, rstd, ..] = inputs else {
        return Vec::new();
    };
    let (rows, width) = rows_and_width(&x.shape);
    let mut dx = x.clone();
    let mut dweight = Array::from_fn(Shape::from([width]), |_| 0.0);
    let mut dbias = dweight.clone();
    for row in 0..rows {
        let at = |i: usize| row * width + i;
        let hat = |i: usize| (x.data[at(i)] - mean.data[row]) * rstd.data[row];
        let scaled = |i: usize| {
            let weight = inputs.get(4).map_or(1.0, |weight| weight.data[i]);
            g.data[at(i)] * weight
        };
        let mean_g = (0..width).map(scaled).sum::<f64>() / width as f64;
        let mean_gx = (0..width).map(|i| scaled(i) * hat(i)).sum::<f64>() / width as f64;
        for i in 0..width {
            dx.data[at(i)] = rstd.data[row] * (scaled(i) - mean_g - hat(i) * mean_gx);
            dweight.data[i] += g.data[at(i)] * hat(i);
            dbias.data[i] += g.data[at(i)];
        }
    }
    let outputs = [dx, dweight, dbias].into_iter().zip(op.wanted);
    let wanted = outputs.filter(|&(_, wanted)| wanted);
    wanted.map(|(array, _)| array).collect()
}
