//! What the laws try.

use super::{RmsNorm, RmsNormBackward};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Layout, Op, OpError, Spec};
use std::sync::Arc;

const FORWARD: RmsNorm = RmsNorm { eps: 1e-5 };

const BACKWARD: RmsNormBackward = RmsNormBackward {
    affine: true,
    wanted: [true; 2],
};

fn f32s(shape: &[usize]) -> Spec {
    Spec::contiguous(DType::F32, shape)
}

fn view(layout: Layout) -> Spec {
    Spec {
        dtype: DType::F32,
        layout,
    }
}

/// Layouts of `x`: rows of many lengths, more than a block of them, views.
fn layouts() -> Vec<Layout> {
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

fn forward(x: Spec, weight: bool, fill: Fill) -> Sample {
    let width = x.shape().last().copied().unwrap_or(1);
    let mut inputs = vec![(x, fill)];
    inputs.resize(1 + usize::from(weight), (f32s(&[width]), Fill::Normal(1.0)));
    Sample {
        op: Arc::new(FORWARD),
        inputs,
        tolerance: 5e-6,
    }
}

pub(super) fn samples() -> Vec<Sample> {
    let normal = Fill::Normal(2.0);
    let both =
        |layout: Layout| [true, false].map(|weight| forward(view(layout.clone()), weight, normal));
    let mut samples: Vec<Sample> = layouts().into_iter().flat_map(both).collect();
    let far = Fill::Uniform(100.0, 103.0);
    samples.push(forward(f32s(&[4, 64]), true, far));
    let strided = view(Layout::strided([37], &[2], 1));
    samples.push(forward(f32s(&[5, 37]), true, normal).input(1, strided, Fill::Normal(1.0)));
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
        inputs.push((f32s(&[width]), Fill::Normal(1.0)));
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
        .map(|layout| backward(BACKWARD, dense(&layout), &view(layout)))
        .collect();
    for op in [plain, weight] {
        samples.push(backward(op, f32s(&[5, 37]), &f32s(&[5, 37])));
        let g = view(Layout::strided([130, 33], &[1, 130], 0));
        samples.push(backward(op, g, &f32s(&[130, 33])));
    }
    samples
}

fn reject(op: impl Op, inputs: Vec<Spec>, error: fn(&OpError) -> bool) -> Reject {
    Reject {
        op: Arc::new(op),
        inputs,
        error,
    }
}

pub(super) fn rejects() -> Vec<Reject> {
    let arity: fn(&OpError) -> bool = |e| matches!(e, OpError::Arity { .. });
    let shape: fn(&OpError) -> bool = |e| matches!(e, OpError::Shape { .. });
    let i64s = Spec::contiguous(DType::I64, [3, 4]);
    vec![
        reject(FORWARD, vec![], arity),
        reject(FORWARD, vec![f32s(&[3, 4]), f32s(&[4]), f32s(&[4])], arity),
        reject(FORWARD, vec![f32s(&[3, 4]), f32s(&[3])], shape),
        reject(FORWARD, vec![f32s(&[])], shape),
        reject(FORWARD, vec![f32s(&[3, 0]), f32s(&[0])], shape),
        reject(FORWARD, vec![i64s], |e| matches!(e, OpError::DType { .. })),
        reject(RmsNorm { eps: f64::NAN }, vec![f32s(&[3, 4])], |e| {
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
    let (x, row, weight) = (f32s(&[3, 4]), f32s(&[3]), f32s(&[4]));
    let good = [x.clone(), x, row.clone(), weight.clone()];
    let with = |i: usize, spec: &Spec| {
        let mut inputs = good.to_vec();
        inputs[i] = spec.clone();
        inputs
    };
    let shape: fn(&OpError) -> bool = |e| matches!(e, OpError::Shape { .. });
    vec![
        reject(BACKWARD, good[..3].to_vec(), |e| {
            matches!(e, OpError::Arity { .. })
        }),
        reject(BACKWARD, with(0, &row), shape),
        reject(BACKWARD, with(2, &weight), shape),
        reject(BACKWARD, with(3, &row), shape),
    ]
}
