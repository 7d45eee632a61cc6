//! What the laws try.

use super::{BatchNorm, BatchNormInference, ChannelNormBackward, GroupNorm, Kind};
use crate::table::{f32_view, f32s, is_arity};
use crate::{Fill, Reject, Sample};
use highwater_graph::{Layout, Op, OpError, Shape, Spec};
use std::sync::Arc;

/// Layouts of `x`: channels of many lengths, of pixels and without any, views.
fn layouts() -> Vec<Layout> {
    vec![
        Layout::contiguous([3, 4, 5, 7]),
        Layout::contiguous([37, 6]),
        Layout::contiguous([2, 6, 1300]),
        Layout::contiguous([5, 300]),
        Layout::contiguous([1, 2, 33]),
        Layout::contiguous([2, 70, 2, 2]),
        Layout::strided([2, 4, 3, 5], &[60, 1, 20, 4], 0),
        Layout::strided([9, 4], &[1, 9], 0),
        Layout::strided([3, 4, 6], &[48, 12, 2], 1),
    ]
}

/// A norm of `x` with statistics of channels and parameters behind it.
fn forward(op: impl Op, x: Spec, given: bool, affine: bool) -> Sample {
    let channels = f32s([x.shape()[1]]);
    let mut inputs = vec![(x, Fill::Normal(2.0))];
    if given {
        inputs.push((channels.clone(), Fill::Normal(1.0)));
        inputs.push((channels.clone(), Fill::Uniform(0.5, 2.0)));
    }
    if affine {
        inputs.push((channels.clone(), Fill::Normal(1.0)));
        inputs.push((channels, Fill::Normal(1.0)));
    }
    Sample {
        op: Arc::new(op),
        inputs,
        tolerance: 1e-5,
    }
}

pub(super) fn batch() -> Vec<Sample> {
    let op = |affine| BatchNorm {
        eps: if affine { 1e-5 } else { 1e-3 },
        affine,
    };
    let mut samples = Vec::new();
    for (i, layout) in layouts().into_iter().enumerate() {
        let affine = i % 3 != 1;
        samples.push(forward(op(affine), f32_view(layout), false, affine));
    }
    samples.push(forward(op(true), f32s([3, 0, 4]), false, true));
    let mut far = forward(op(true), f32s([4, 3, 16]), false, true);
    far.inputs[0].1 = Fill::Uniform(100.0, 103.0);
    // The mean is rounded to `f32`.
    samples.push(far.tolerance(1e-4));
    samples
}

pub(super) fn inference() -> Vec<Sample> {
    let op = |affine| BatchNormInference {
        eps: if affine { 1e-5 } else { 1e-3 },
        affine,
    };
    let mut samples = Vec::new();
    for (i, layout) in layouts().into_iter().enumerate() {
        let affine = i % 3 != 1;
        samples.push(forward(op(affine), f32_view(layout), true, affine));
    }
    samples.push(forward(op(true), f32s([0, 3, 4]), true, true));
    samples
}

pub(super) fn group() -> Vec<Sample> {
    let op = |groups, affine| GroupNorm {
        groups,
        eps: if affine { 1e-5 } else { 1e-3 },
        affine,
    };
    let mut samples = Vec::new();
    for (i, layout) in layouts().into_iter().enumerate() {
        let affine = i % 3 != 1;
        samples.push(forward(op(2, affine), f32_view(layout), false, affine));
    }
    samples.push(forward(op(4, true), f32s([3, 4, 9]), false, true));
    samples.push(forward(op(1, true), f32s([3, 4, 9]), false, true));
    samples.push(forward(op(2, true), f32s([0, 4, 9]), false, true));
    samples
}

fn gradient(op: ChannelNormBackward, g: Spec, x: Spec) -> Sample {
    let statistics = op.kind.statistics(x.shape());
    let channels = f32s([x.shape()[1]]);
    let mut inputs = vec![
        (g, Fill::Normal(1.0)),
        (x, Fill::Normal(1.0)),
        (f32s(&statistics), Fill::Normal(0.1)),
        (f32s(&statistics), Fill::Uniform(0.5, 1.5)),
    ];
    if op.affine {
        inputs.push((channels, Fill::Normal(1.0)));
    }
    Sample {
        op: Arc::new(op),
        inputs,
        tolerance: 1e-5,
    }
}

pub(super) fn backward() -> Vec<Sample> {
    let dense = |layout: &Layout| f32s(layout.shape());
    let kinds = [Kind::Batch, Kind::Groups(2), Kind::Inference];
    let mut samples = Vec::new();
    for (i, layout) in layouts().into_iter().enumerate() {
        for kind in kinds {
            let op = ChannelNormBackward {
                kind,
                affine: i % 3 != 1,
                wanted: [true; 3],
            };
            samples.push(gradient(op, dense(&layout), f32_view(layout.clone())));
        }
    }
    let shape: Shape = [3, 4, 10].into();
    for wanted in [
        [true, false, false],
        [false, true, true],
        [false, false, true],
        [true, true, false],
    ] {
        let op = ChannelNormBackward {
            kind: Kind::Batch,
            affine: true,
            wanted,
        };
        let g = f32_view(Layout::strided(shape.clone(), &[10, 30, 1], 0));
        samples.push(gradient(op, g, f32s(&shape)));
    }
    samples
}

fn reject(op: impl Op, shapes: &[&[usize]], error: fn(&OpError) -> bool) -> Reject {
    Reject::new(op, shapes.iter().map(|&shape| f32s(shape)).collect(), error)
}

fn is_shape(error: &OpError) -> bool {
    matches!(error, OpError::Shape { .. })
}

fn is_attribute(error: &OpError) -> bool {
    matches!(error, OpError::Attribute { .. })
}

pub(super) fn batch_rejects() -> Vec<Reject> {
    let op = |eps, affine| BatchNorm { eps, affine };
    vec![
        reject(op(1e-5, false), &[&[3]], is_shape),
        reject(op(1e-5, false), &[&[1, 3, 1]], is_shape),
        reject(op(1e-5, true), &[&[2, 3, 4], &[3], &[4]], is_shape),
        reject(op(0.0, false), &[&[2, 3, 4]], is_attribute),
        reject(op(1e-5, true), &[&[2, 3, 4], &[3]], is_arity),
    ]
}

pub(super) fn inference_rejects() -> Vec<Reject> {
    let op = BatchNormInference {
        eps: 1e-5,
        affine: false,
    };
    vec![
        reject(op, &[&[3], &[3], &[3]], is_shape),
        reject(op, &[&[2, 3, 4], &[3], &[4]], is_shape),
        reject(op, &[&[2, 3, 4], &[3]], is_arity),
    ]
}

pub(super) fn group_rejects() -> Vec<Reject> {
    let op = |groups| GroupNorm {
        groups,
        eps: 1e-5,
        affine: false,
    };
    vec![
        reject(op(2), &[&[2, 3, 4]], is_attribute),
        reject(op(0), &[&[2, 3, 4]], is_attribute),
        reject(op(2), &[&[4]], is_shape),
        reject(op(2), &[&[3, 4, 0]], is_shape),
    ]
}

pub(super) fn backward_rejects() -> Vec<Reject> {
    let op = ChannelNormBackward {
        kind: Kind::Groups(2),
        affine: false,
        wanted: [true; 3],
    };
    vec![
        reject(op, &[&[2, 4], &[2, 4, 3], &[2, 2], &[2, 2]], is_shape),
        reject(op, &[&[2, 4, 3], &[2, 4, 3], &[4], &[2, 2]], is_shape),
        reject(op, &[&[2, 4, 3], &[2, 4, 3], &[2, 2]], is_arity),
    ]
}
