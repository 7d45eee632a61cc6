//! What the laws try.

use super::{Pad, PadBackward, PadMode};
use crate::table::{f32_view, f32s};
use crate::{Fill, Reject, Sample};
use highwater_graph::{Layout, Op, OpError};
use std::sync::Arc;

const ZERO: PadMode = PadMode::Constant(0.0);

fn op(mode: PadMode, pads: &[[isize; 2]]) -> Pad {
    Pad {
        pads: pads.to_vec(),
        mode,
    }
}

/// Paddings that repeat elements, and shapes for them.
fn repeating() -> Vec<(Pad, Vec<usize>)> {
    let images: &[[isize; 2]] = &[[0, 0], [0, 0], [2, 1], [1, 3]];
    let shape = vec![2, 3, 4, 5];
    vec![
        (op(PadMode::Reflect, images), shape.clone()),
        (op(PadMode::Replicate, images), shape.clone()),
        (op(PadMode::Circular, images), shape),
        (op(PadMode::Reflect, &[[0, 0], [4, 4]]), vec![3, 5]),
        (op(PadMode::Replicate, &[[3, 0], [0, 0]]), vec![2, 600]),
        (op(PadMode::Circular, &[[7, 7]]), vec![7]),
    ]
}

fn sample(op: impl Op, layout: Layout) -> Sample {
    let spec = f32_view(layout);
    Sample {
        op: Arc::new(op),
        inputs: vec![(spec, Fill::Normal(1.0))],
        tolerance: 1e-6,
    }
}

pub(super) fn pad() -> Vec<Sample> {
    let dense = |op: Pad, shape: &[usize]| sample(op, Layout::contiguous(shape));
    let mut samples: Vec<Sample> = repeating()
        .into_iter()
        .map(|(op, shape)| dense(op, &shape))
        .collect();
    samples.extend([
        dense(op(PadMode::Constant(1.5), &[[1, 2], [0, 3]]), &[3, 70]),
        dense(op(ZERO, &[[0, 0], [-1, 2], [3, -2]]), &[2, 4, 5]),
        dense(op(ZERO, &[[-2, -1], [0, 0]]), &[3, 5]),
        dense(op(ZERO, &[[2, 1]]), &[0]),
        dense(op(ZERO, &[]), &[]),
        sample(
            op(PadMode::Reflect, &[[1, 1], [2, 0]]),
            Layout::strided([4, 6], &[1, 4], 0),
        ),
    ]);
    samples
}

pub(super) fn backward() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (pad, shape) in repeating() {
        let padded = pad.padded("pad", &shape.clone().into()).unwrap_or_default();
        let shape = shape.into();
        samples.push(sample(
            PadBackward { pad, shape },
            Layout::contiguous(padded),
        ));
    }
    let pad = op(ZERO, &[[1, 2], [-1, 3]]);
    let shape = [3, 4].into();
    samples.push(sample(
        PadBackward { pad, shape },
        Layout::strided([6, 6], &[1, 6], 0),
    ));
    samples
}

fn reject(op: impl Op, shape: &[usize], error: fn(&OpError) -> bool) -> Reject {
    Reject::new(op, vec![f32s(shape)], error)
}

fn is_shape(error: &OpError) -> bool {
    matches!(error, OpError::Shape { .. })
}

fn is_attribute(error: &OpError) -> bool {
    matches!(error, OpError::Attribute { .. })
}

pub(super) fn pad_rejects() -> Vec<Reject> {
    vec![
        reject(op(ZERO, &[[1, 1]]), &[3, 4], is_shape),
        reject(op(ZERO, &[[-4, 0]]), &[3], is_attribute),
        reject(op(PadMode::Reflect, &[[3, 0]]), &[3], is_attribute),
        reject(op(PadMode::Replicate, &[[1, 0]]), &[0], is_attribute),
        reject(op(PadMode::Circular, &[[0, 4]]), &[3], is_attribute),
        reject(op(PadMode::Circular, &[[0, -1]]), &[3], is_attribute),
    ]
}

pub(super) fn backward_rejects() -> Vec<Reject> {
    let pad = op(PadMode::Reflect, &[[1, 1]]);
    let shape = [3].into();
    vec![reject(PadBackward { pad, shape }, &[4], is_shape)]
}
