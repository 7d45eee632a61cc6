//! What the laws try.

use super::{Interpolate, InterpolateBackward, Interpolation};
use crate::table::{f32_view, f32s};
use crate::{Fill, Reject, Sample};
use highwater_graph::{Layout, Op, OpError};
use std::sync::Arc;

const CORNERS: Interpolation = Interpolation::Bilinear {
    align_corners: true,
};
const EDGES: Interpolation = Interpolation::Bilinear {
    align_corners: false,
};

fn op(mode: Interpolation, size: [usize; 2], scale: Option<[f64; 2]>) -> Interpolate {
    Interpolate { size, scale, mode }
}

/// Operations, and images for them.
fn cases() -> Vec<(Interpolate, [usize; 4])> {
    let mut cases = Vec::new();
    for mode in [Interpolation::Nearest, CORNERS, EDGES] {
        cases.extend([
            (op(mode, [8, 10], None), [2, 3, 4, 5]),
            (op(mode, [7, 3], None), [1, 2, 4, 5]),
            (op(mode, [3, 1], None), [2, 2, 1, 6]),
            (op(mode, [6, 12], Some([1.6, 2.5])), [1, 2, 4, 5]),
        ]);
    }
    cases.push((op(EDGES, [3, 3], None), [0, 2, 4, 5]));
    cases
}

fn sample(op: impl Op, layout: Layout) -> Sample {
    let spec = f32_view(layout);
    Sample {
        op: Arc::new(op),
        inputs: vec![(spec, Fill::Normal(1.0))],
        tolerance: 5e-6,
    }
}

pub(super) fn forward() -> Vec<Sample> {
    let mut samples: Vec<Sample> = cases()
        .into_iter()
        .map(|(op, shape)| sample(op, Layout::contiguous(shape)))
        .collect();
    let last = Layout::strided([2, 4, 3, 5], &[60, 1, 20, 4], 0);
    samples.push(sample(cases()[4].0, last));
    samples
}

pub(super) fn backward() -> Vec<Sample> {
    let samples = cases().into_iter().map(|(forward, [n, c, h, w])| {
        let [rows, cols] = forward.size;
        let op = InterpolateBackward {
            forward,
            sides: [h, w],
        };
        sample(op, Layout::contiguous([n, c, rows, cols]))
    });
    samples.collect()
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

pub(super) fn forward_rejects() -> Vec<Reject> {
    vec![
        reject(op(EDGES, [2, 2], None), &[3, 4, 4], is_shape),
        reject(op(EDGES, [2, 2], None), &[2, 3, 0, 4], is_shape),
        reject(op(EDGES, [0, 2], None), &[2, 3, 4, 4], is_attribute),
        reject(
            op(EDGES, [2, 2], Some([0.0, 1.0])),
            &[2, 3, 4, 4],
            is_attribute,
        ),
    ]
}

pub(super) fn backward_rejects() -> Vec<Reject> {
    let op = InterpolateBackward {
        forward: op(EDGES, [2, 2], None),
        sides: [4, 4],
    };
    vec![reject(op, &[2, 3, 2, 3], is_shape)]
}
