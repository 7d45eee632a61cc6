//! What the laws try.

use super::{LayerNorm, LayerNormBackward};
use crate::table::{f32_strided, f32_view, f32s, is_arity, is_dtype, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Layout, OpError, Spec};
use std::sync::Arc;

const FORWARD: LayerNorm = LayerNorm {
    eps: 1e-5,
    affine: true,
};

const BACKWARD: LayerNormBackward = LayerNormBackward {
    affine: true,
    wanted: [true; 3],
};

/// Layouts of `x`: rows of many lengths, more than a block of them, views.
pub(crate) fn layouts() -> Vec<Layout> {
    vec![
        Layout::contiguous([5, 37]),
        Layout::contiguous([2, 9, 48]),
        Layout::contiguous([3, 1025]),
        Layout::contiguous([64]),
        Layout::contiguous([300, 130]),
        Layout::contiguous([0, 5]),
        Layout::strided([6, 37], &[1, 6], 0),
        Layout::strided([9, 65], &[130, 2], 3),
        Layout::strided([4, 9, 33], &[33, 0, 1], 0),
    ]
}

fn forward(op: LayerNorm, x: Spec, parameters: usize) -> Sample {
    let width = x.shape().last().copied().unwrap_or(1);
    let mut inputs = vec![(x, Fill::Normal(2.0))];
    inputs.resize(1 + parameters, (f32s([width]), Fill::Normal(1.0)));
    Sample {
        op: Arc::new(op),
        inputs,
        tolerance: 5e-6,
    }
}

pub(super) fn samples() -> Vec<Sample> {
    let plain = LayerNorm {
        eps: 1e-3,
        affine: false,
    };
    let mut samples: Vec<Sample> = layouts()
        .into_iter()
        .flat_map(|layout| {
            let x = f32_view(layout);
            [forward(FORWARD, x.clone(), 2), forward(plain, x, 0)]
        })
        .collect();
    samples.push(forward(FORWARD, f32s([5, 37]), 1));
    let mut far = forward(FORWARD, f32s([4, 64]), 2);
    far.inputs[0].1 = Fill::Uniform(100.0, 103.0);
    samples.push(far.tolerance(1e-5));
    let strided = f32_strided([37], &[2], 1);
    samples.push(forward(FORWARD, f32s([5, 37]), 2).input(1, strided, Fill::Normal(1.0)));
    samples
}

fn backward(op: LayerNormBackward, g: Spec, x: &Spec) -> Sample {
    let (&width, lead) = x.shape().split_last().unwrap_or((&1, &[]));
    let mut inputs = vec![
        (g, Fill::Normal(1.0)),
        (x.clone(), Fill::Normal(1.0)),
        (f32s(lead), Fill::Normal(0.1)),
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
    let plain = LayerNormBackward {
        affine: false,
        wanted: [true, false, false],
    };
    let parameters = LayerNormBackward {
        wanted: [false, true, true],
        ..BACKWARD
    };
    let bias = LayerNormBackward {
        wanted: [false, false, true],
        ..BACKWARD
    };
    let dense = |layout: &Layout| f32s(layout.shape());
    let mut samples: Vec<Sample> = layouts()
        .into_iter()
        .map(|layout| backward(BACKWARD, dense(&layout), &f32_view(layout)))
        .collect();
    for op in [plain, parameters, bias] {
        samples.push(backward(op, f32s([5, 37]), &f32s([5, 37])));
        let g = f32_strided([130, 33], &[1, 130], 0);
        samples.push(backward(op, g, &f32s([130, 33])));
    }
    samples
}

pub(super) fn rejects() -> Vec<Reject> {
    let eps = LayerNorm {
        eps: 0.0,
        ..FORWARD
    };
    let i64s = Spec::contiguous(DType::I64, [3, 4]);
    vec![
        Reject::new(FORWARD, vec![f32s([3, 4])], is_arity),
        Reject::new(FORWARD, vec![f32s([3, 4]), f32s([3]), f32s([4])], is_shape),
        Reject::new(FORWARD, vec![f32s([]); 3], is_shape),
        Reject::new(FORWARD, vec![f32s([3, 0]), f32s([0])], is_shape),
        Reject::new(FORWARD, vec![i64s, f32s([4])], is_dtype),
        Reject::new(eps, vec![f32s([3, 4]), f32s([4])], |e| {
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
    let good = [
        x.clone(),
        x.clone(),
        row.clone(),
        row.clone(),
        weight.clone(),
    ];
    let with = |i: usize, spec: &Spec| {
        let mut inputs = good.to_vec();
        inputs[i] = spec.clone();
        inputs
    };
    vec![
        Reject::new(BACKWARD, good[..4].to_vec(), is_arity),
        Reject::new(BACKWARD, with(0, &row), is_shape),
        Reject::new(BACKWARD, with(3, &weight), is_shape),
        Reject::new(BACKWARD, with(4, &row), is_shape),
    ]
}
