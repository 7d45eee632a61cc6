//! What the laws try.

use super::{RmsNorm, RmsNormBackward};
use crate::ops::layer_norm::samples::layouts;
use crate::table::{f32_strided, f32_view, f32s, is_arity, is_dtype, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Layout, OpError, Spec};
use std::sync::Arc;

const FORWARD: RmsNorm = RmsNorm { eps: 1e-5 };

const BACKWARD: RmsNormBackward = RmsNormBackward {
    affine: true,
    wanted: [true; 2],
};

fn forward(x: Spec, weight: bool, fill: Fill) -> Sample {
    let width = x.shape().last().copied().unwrap_or(1);
    let mut inputs = vec![(x, fill)];
    inputs.resize(1 + usize::from(weight), (f32s([width]), Fill::Normal(1.0)));
    Sample {
        op: Arc::new(FORWARD),
        inputs,
        tolerance: 5e-6,
    }
}

pub(super) fn samples() -> Vec<Sample> {
    let normal = Fill::Normal(2.0);
    let both = |layout: Layout| {
        [true, false].map(|weight| forward(f32_view(layout.clone()), weight, normal))
    };
    let mut samples: Vec<Sample> = layouts().into_iter().flat_map(both).collect();
    let far = Fill::Uniform(100.0, 103.0);
    samples.push(forward(f32s([4, 64]), true, far));
    let strided = f32_strided([37], &[2], 1);
    samples.push(forward(f32s([5, 37]), true, normal).input(1, strided, Fill::Normal(1.0)));
    samples
}

fn backward(op: RmsNormBackward, g: Spec, x: &Spec) -> Sample {
    let (&width, lead) = x.shape().split_last().unwrap_or((&1, &[]));
    let mut inputs = vec![
        (g, Fill::Normal(1.0)),
        (x.clone(), Fill::Normal(1.0)),
        (f32s(lead), Fill::Uniform(0.5, 1.5)),
    ];
    if op.affine {
        inputs.push((f32s([width]), Fill::Normal(1.0)));
    }
    Sample {
        op: Arc::new(op),
        inputs,
        tolerance: 1e-5,
    }
}

pub(super) fn backward_samples() -> Vec<Sample> {
    let plain = RmsNormBackward {
        affine: false,
        wanted: [true, false],
    };
    let weight = RmsNormBackward {
        wanted: [false, true],
        ..BACKWARD
    };
    let dense = |layout: &Layout| f32s(layout.shape());
    let mut samples: Vec<Sample> = layouts()
        .into_iter()
        .map(|layout| backward(BACKWARD, dense(&layout), &f32_view(layout)))
        .collect();
    for op in [plain, weight] {
        samples.push(backward(op, f32s([5, 37]), &f32s([5, 37])));
        let g = f32_strided([130, 33], &[1, 130], 0);
        samples.push(backward(op, g, &f32s([130, 33])));
    }
    samples
}

pub(super) fn rejects() -> Vec<Reject> {
    let i64s = Spec::contiguous(DType::I64, [3, 4]);
    vec![
        Reject::new(FORWARD, vec![], is_arity),
        Reject::new(FORWARD, vec![f32s([3, 4]), f32s([4]), f32s([4])], is_arity),
        Reject::new(FORWARD, vec![f32s([3, 4]), f32s([3])], is_shape),
        Reject::new(FORWARD, vec![f32s([])], is_shape),
        Reject::new(FORWARD, vec![f32s([3, 0]), f32s([0])], is_shape),
        Reject::new(FORWARD, vec![i64s], is_dtype),
        Reject::new(RmsNorm { eps: f64::NAN }, vec![f32s([3, 4])], |e| {
            matches!(
                e,
                OpError::Attribute {
                    attribute: "eps",
                    ..
                }
            )
        }),
    ]
}

pub(super) fn backward_rejects() -> Vec<Reject> {
    let (x, row, weight) = (f32s([3, 4]), f32s([3]), f32s([4]));
    let good = [x.clone(), x, row.clone(), weight.clone()];
    let with = |i: usize, spec: &Spec| {
        let mut inputs = good.to_vec();
        inputs[i] = spec.clone();
        inputs
    };
    vec![
        Reject::new(BACKWARD, good[..3].to_vec(), is_arity),
        Reject::new(BACKWARD, with(0, &row), is_shape),
        Reject::new(BACKWARD, with(2, &weight), is_shape),
        Reject::new(BACKWARD, with(3, &row), is_shape),
    ]
}
