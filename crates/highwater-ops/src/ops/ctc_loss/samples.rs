//! What the laws try.

use super::{CtcLoss, CtcLossBackward};
use crate::table::{f32_strided, f32s, is_arity, is_attribute, is_dtype, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Op, Spec};
use std::sync::Arc;

const KEPT: CtcLoss = CtcLoss {
    blank: 0,
    zero_infinity: false,
};
const LEFT_OUT: CtcLoss = CtcLoss {
    blank: 2,
    zero_infinity: true,
};

/// Contents that are about logarithms of probabilities.
const LOGARITHMS: Fill = Fill::Uniform(-4.0, 0.0);

/// Frames, targets, classes and labels; what lengths are; and whether targets are packed.
type Case = ([usize; 4], [Fill; 2], bool);

const fn all(count: usize) -> Fill {
    Fill::Constant(count as f64)
}

const CASES: [Case; 9] = [
    // All of them, some, and too few frames for some targets.
    ([12, 3, 5, 4], [all(12), all(4)], false),
    ([15, 5, 4, 6], [Fill::Indices(16), Fill::Indices(7)], false),
    ([4, 6, 3, 5], [Fill::Indices(5), Fill::Indices(6)], false),
    ([40, 2, 30, 17], [all(37), all(12)], false),
    ([9, 3, 5, 12], [all(9), all(4)], true),
    ([7, 1, 4, 3], [all(6), all(3)], true),
    // No labels, no frames, no targets.
    ([5, 3, 4, 0], [all(5), all(0)], false),
    ([0, 2, 4, 2], [all(0), Fill::Indices(2)], false),
    ([5, 0, 4, 2], [all(0), all(0)], false),
];

fn whole(dtype: DType, shape: &[usize]) -> Spec {
    Spec::contiguous(dtype, shape)
}

fn inputs(
    ([frames, batch, classes, labels], lengths, packed): Case,
    dtypes: [DType; 2],
) -> Vec<(Spec, Fill)> {
    let of_targets = [batch, labels];
    let shape = if packed {
        &of_targets[1..]
    } else {
        &of_targets
    };
    vec![
        (f32s([frames, batch, classes]), LOGARITHMS),
        (whole(dtypes[0], shape), Fill::Indices(classes)),
        (whole(dtypes[1], &[batch]), lengths[0]),
        (whole(dtypes[1], &[batch]), lengths[1]),
    ]
}

/// The operations that are tried, each with inputs of the loss.
fn cases() -> Vec<(CtcLoss, Vec<(Spec, Fill)>)> {
    let wide = [DType::I64; 2];
    let mut cases = Vec::new();
    for case in CASES {
        cases.push((KEPT, inputs(case, wide)));
        cases.push((LEFT_OUT, inputs(case, wide)));
    }
    for dtypes in [
        [DType::U32, DType::I64],
        [DType::I64, DType::U32],
        [DType::U32; 2],
    ] {
        cases.push((KEPT, inputs(CASES[0], dtypes)));
    }
    let mut view = inputs(CASES[0], wide);
    view[0].0 = f32_strided([12, 3, 5], &[5, 61, 1], 2);
    cases.push((KEPT, view));
    cases
}

pub(super) fn forward() -> Vec<Sample> {
    let samples = cases().into_iter().map(|(op, inputs)| Sample {
        op: Arc::new(op),
        inputs,
        tolerance: 1e-6,
    });
    samples.collect()
}

pub(super) fn backward() -> Vec<Sample> {
    let samples = cases().into_iter().map(|(op, mut inputs)| {
        let batch = inputs[2].0.layout.numel();
        inputs.insert(0, (f32s([batch]), Fill::Normal(1.0)));
        Sample {
            op: Arc::new(CtcLossBackward(op)),
            inputs,
            tolerance: 1e-6,
        }
    });
    samples.collect()
}

/// The inputs of a loss, with another one at a place.
fn with(i: usize, spec: Spec) -> Vec<Spec> {
    let inputs = inputs(CASES[0], [DType::I64; 2]).into_iter();
    let mut specs: Vec<Spec> = inputs.map(|(spec, _)| spec).collect();
    specs[i] = spec;
    specs
}

/// What is refused of the loss's inputs, with one before them or not.
fn rejects(op: impl Op + Clone, at_fifth: impl Op, before: Option<&Spec>) -> Vec<Reject> {
    let all = |specs: Vec<Spec>| before.cloned().into_iter().chain(specs).collect::<Vec<_>>();
    let usual = with(0, f32s([12, 3, 5]));
    let lengths = whole(DType::I64, &[4]);
    vec![
        Reject::new(op.clone(), all(with(0, f32s([12, 5]))), is_shape),
        Reject::new(
            op.clone(),
            all(with(0, whole(DType::I64, &[12, 3, 5]))),
            is_dtype,
        ),
        Reject::new(
            op.clone(),
            all(with(1, whole(DType::I64, &[4, 4]))),
            is_shape,
        ),
        Reject::new(op.clone(), all(with(1, f32s([3, 4]))), is_dtype),
        Reject::new(op.clone(), all(with(2, lengths.clone())), is_shape),
        Reject::new(op.clone(), all(with(3, lengths)), is_shape),
        Reject::new(op.clone(), all(with(3, whole(DType::U32, &[3]))), is_dtype),
        Reject::new(op, all(usual[..3].to_vec()), is_arity),
        Reject::new(at_fifth, all(usual), is_attribute),
    ]
}

pub(super) fn forward_rejects() -> Vec<Reject> {
    let at_fifth = CtcLoss { blank: 5, ..KEPT };
    rejects(KEPT, at_fifth, None)
}

pub(super) fn backward_rejects() -> Vec<Reject> {
    let at_fifth = CtcLossBackward(CtcLoss { blank: 5, ..KEPT });
    let mut rejects = rejects(CtcLossBackward(KEPT), at_fifth, Some(&f32s([3])));
    let mut specs = with(0, f32s([12, 3, 5]));
    specs.insert(0, f32s([4]));
    rejects.push(Reject::new(CtcLossBackward(KEPT), specs, is_shape));
    rejects
}
