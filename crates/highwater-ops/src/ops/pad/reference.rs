//! The plain references.

use super::{Pad, PadBackward, PadMode};
use crate::Array;
use highwater_graph::{Op, Shape};

/// Where each element of the result comes from, in row-major order.
fn sources(pad: &Pad, shape: &Shape) -> (Shape, Vec<Option<usize>>) {
    let padded = pad.padded("pad", shape).expect("a padding that fits");
    let sources = (0..padded.numel()).map(|flat| {
        let (mut rest, mut stride, mut position) = (flat, 1, 0);
        for dim in (0..shape.rank()).rev() {
            position += pad.source(dim, rest % padded[dim], shape[dim])? * stride;
            rest /= padded[dim];
            stride *= shape[dim];
        }
        Some(position)
    });
    let sources = sources.collect();
    (padded, sources)
}

pub(super) fn pad(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let pad: &Pad = op.downcast().expect("pad");
    let x = &inputs[0];
    let (shape, sources) = sources(pad, &x.shape);
    let value = match pad.mode {
        PadMode::Constant(value) => value,
        _ => 0.0,
    };
    vec![Array::from_fn(shape, |at| {
        sources[at].map_or(value, |source| x.data[source])
    })]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &PadBackward = op.downcast().expect("pad_backward");
    let mut dx = Array::from_fn(op.shape.clone(), |_| 0.0);
    let (_, sources) = sources(&op.pad, &op.shape);
    for (g, source) in inputs[0].data.iter().zip(sources) {
        if let Some(source) = source {
            dx.data[source] += g;
        }
    }
    vec![dx]
}
