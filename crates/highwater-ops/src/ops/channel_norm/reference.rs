//! The plain references.

use super::{BatchNorm, BatchNormInference, ChannelNormBackward, Geometry, GroupNorm, Kind};
use crate::Array;
use highwater_graph::{Op, Shape};

impl Geometry {
    /// The row of an element, and the element of the weight that is its.
    fn of(&self, at: usize) -> (usize, usize) {
        let (row, within) = (at / self.width() % self.rows, at % self.width());
        (row, self.parameter(row, within / self.pixels))
    }
}

/// Mean and biased variance of each row.
fn moments(geometry: &Geometry, x: &Array) -> [Vec<f64>; 2] {
    let count = geometry.count() as f64;
    let mut mean = vec![0.0; geometry.rows];
    for (at, x) in x.data.iter().enumerate() {
        mean[geometry.of(at).0] += x / count;
    }
    let mut var = vec![0.0; geometry.rows];
    for (at, x) in x.data.iter().enumerate() {
        let row = geometry.of(at).0;
        var[row] += (x - mean[row]).powi(2) / count;
    }
    [mean, var]
}

fn rstd(var: &[f64], eps: f64) -> Vec<f64> {
    var.iter().map(|var| 1.0 / (var + eps).sqrt()).collect()
}

fn normalise(
    geometry: &Geometry,
    x: &Array,
    [mean, rstd]: [&[f64]; 2],
    parameters: &[Array],
) -> Array {
    Array::from_fn(x.shape.clone(), |at| {
        let (row, channel) = geometry.of(at);
        let parameter = |i: usize| parameters.get(i).map(|array| array.data[channel]);
        let hat = (x.data[at] - mean[row]) * rstd[row];
        hat * parameter(0).unwrap_or(1.0) + parameter(1).unwrap_or(0.0)
    })
}

fn array(shape: &Shape, data: &[f64]) -> Array {
    Array::from_fn(shape.clone(), |i| data[i])
}

pub(super) fn batch(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &BatchNorm = op.downcast().expect("batch_norm");
    let x = &inputs[0];
    let geometry = Geometry::new(Kind::Batch, &x.shape);
    let [mean, var] = moments(&geometry, x);
    let rstd = rstd(&var, op.eps);
    let y = normalise(&geometry, x, [&mean, &rstd], &inputs[1..]);
    let shape = Kind::Batch.statistics(&x.shape);
    let [mean, rstd, var] = [mean, rstd, var].map(|data| array(&shape, &data));
    vec![y, mean, rstd, var]
}

pub(super) fn inference(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &BatchNormInference = op.downcast().expect("batch_norm_inference");
    let (x, mean) = (&inputs[0], &inputs[1]);
    let geometry = Geometry::new(Kind::Inference, &x.shape);
    let rstd = rstd(&inputs[2].data, op.eps);
    let y = normalise(&geometry, x, [&mean.data, &rstd], &inputs[3..]);
    vec![y, array(&mean.shape, &rstd)]
}

pub(super) fn group(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &GroupNorm = op.downcast().expect("group_norm");
    let x = &inputs[0];
    let kind = Kind::Groups(op.groups);
    let geometry = Geometry::new(kind, &x.shape);
    let [mean, var] = moments(&geometry, x);
    let rstd = rstd(&var, op.eps);
    let y = normalise(&geometry, x, [&mean, &rstd], &inputs[1..]);
    let shape = kind.statistics(&x.shape);
    let [mean, rstd] = [mean, rstd].map(|data| array(&shape, &data));
    vec![y, mean, rstd]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &ChannelNormBackward = op.downcast().expect("channel_norm_backward");
    let [g, x, mean, rstd, ..] = inputs else {
        return Vec::new();
    };
    let geometry = Geometry::new(op.kind, &x.shape);
    let (rows, count) = (geometry.rows, geometry.count() as f64);
    let mut means = [vec![0.0; rows], vec![0.0; rows]];
    let mut dweight = Array::from_fn(Shape::from([geometry.channels]), |_| 0.0);
    let mut dbias = dweight.clone();
    let weight = |channel: usize| inputs.get(4).map_or(1.0, |weight| weight.data[channel]);
    let hat = |at: usize, row: usize| (x.data[at] - mean.data[row]) * rstd.data[row];
    for (at, g) in g.data.iter().enumerate() {
        let (row, channel) = geometry.of(at);
        let hat = hat(at, row);
        dweight.data[channel] += g * hat;
        dbias.data[channel] += g;
        if op.kind != Kind::Inference {
            means[0][row] += g * weight(channel) / count;
            means[1][row] += g * weight(channel) * hat / count;
        }
    }
    let dx = Array::from_fn(x.shape.clone(), |at| {
        let (row, channel) = geometry.of(at);
        let centred = g.data[at] * weight(channel) - means[0][row];
        rstd.data[row] * (centred - hat(at, row) * means[1][row])
    });
    let outputs = [dx, dweight, dbias].into_iter().zip(op.wanted);
    let wanted = outputs.filter(|&(_, wanted)| wanted);
    wanted.map(|(array, _)| array).collect()
}
