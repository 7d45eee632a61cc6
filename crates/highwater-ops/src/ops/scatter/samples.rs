//! What the laws try.

use super::ScatterReduction::{Amax, Amin, Mean, Prod, Sum};
use super::{Scatter, ScatterReduce, ScatterReduction, ScatterWeights};
use crate::table::{is_arity, is_attribute, is_dtype, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Layout, Op, Spec};

const ALL: [ScatterReduction; 5] = [Sum, Prod, Mean, Amax, Amin];

/// Dimensions, the extent that indices are for, and the shapes of indices.
const CASES: [(usize, usize, &[usize]); 10] = [
    (1, 11, &[5, 37]),
    (0, 9, &[20, 37]),
    (1, 7, &[3, 5, 33]),
    (1, 40, &[70, 130]),
    (0, 640, &[2100]),
    (0, 3000, &[20, 70]),
    (2, 4, &[2, 3, 5, 6]),
    (1, 3, &[0, 5]),
    (1, 3, &[4, 0]),
    (0, 1, &[]),
];

/// Whether a case is tried of a reduction: the large ones of some alone, for they take long.
fn is_tried(
    (_, extent, shape): (usize, usize, &[usize]),
    reduction: Option<ScatterReduction>,
) -> bool {
    let is_large = shape.iter().product::<usize>() + extent > 1000;
    !is_large || matches!(reduction, Some(Mean | Amax))
}

fn view(dtype: DType, shape: &[usize], strides: &[usize], offset: usize) -> Spec {
    let layout = Layout::strided(shape, strides, offset);
    Spec { dtype, layout }
}

fn sample(op: impl Op, (dim, extent, shape): (usize, usize, &[usize])) -> Sample {
    let mut base = shape.to_vec();
    if let Some(own) = base.get_mut(dim) {
        *own = extent;
    }
    let index = Spec::contiguous(DType::I64, shape);
    Sample::new(op, &[shape, shape, &base]).input(1, index, Fill::Indices(extent))
}

/// Views of every input, and one index for all columns.
fn views(op: impl Op + Copy) -> Vec<Sample> {
    let index = |shape: &[usize], strides: &[usize]| view(DType::U32, shape, strides, 2);
    let normal = Fill::Normal(300.0);
    vec![
        sample(op, (1, 11, &[3, 30, 70])).input(
            1,
            index(&[3, 30, 70], &[0, 1, 0]),
            Fill::Indices(11),
        ),
        sample(op, (1, 9, &[20, 30]))
            .input(0, view(DType::F32, &[20, 30], &[1, 20], 3), normal)
            .input(1, index(&[20, 30], &[1, 20]), Fill::Indices(9))
            .input(2, view(DType::F32, &[20, 9], &[1, 21], 3), normal),
        sample(op, (1, 9, &[4, 5])).input(0, view(DType::F32, &[4, 5], &[0, 1], 0), normal),
    ]
}

pub(super) fn scatter() -> Vec<Sample> {
    let mut samples: Vec<Sample> = CASES
        .iter()
        .map(|&case| sample(Scatter { dim: case.0 }, case))
        .collect();
    samples.extend(views(Scatter { dim: 1 }));
    for dtype in [DType::I64, DType::I16, DType::U32, DType::U8, DType::Bool] {
        let most = if dtype == DType::Bool { 2 } else { 100 };
        for of_index in [DType::I64, DType::U32] {
            samples.push(
                sample(Scatter { dim: 1 }, (1, 5, &[4, 9]))
                    .input(0, Spec::contiguous(dtype, [4, 9]), Fill::Indices(most))
                    .input(1, Spec::contiguous(of_index, [4, 9]), Fill::Indices(5))
                    .input(2, Spec::contiguous(dtype, [4, 5]), Fill::Indices(most)),
            );
        }
    }
    let samples = samples.into_iter();
    samples.map(|sample| sample.tolerance(0.0)).collect()
}

/// Contents whose order finite differences seldom change, and whose products stay small.
fn filled(mut sample: Sample, reduction: ScatterReduction) -> Sample {
    for (spec, fill) in &mut sample.inputs {
        if spec.dtype == DType::F32 {
            *fill = match reduction {
                Prod => Fill::Uniform(-1.3, 1.3),
                Amax | Amin => Fill::Normal(300.0),
                Sum | Mean => Fill::Normal(1.0),
            };
        }
    }
    sample
}

pub(super) fn reduce() -> Vec<Sample> {
    let mut samples = Vec::new();
    for reduction in ALL {
        let cases = CASES.into_iter().enumerate();
        for (i, case) in cases.filter(|&(_, case)| is_tried(case, Some(reduction))) {
            let op = ScatterReduce {
                dim: case.0,
                reduction,
                include_self: (i + reduction as usize).is_multiple_of(2),
            };
            samples.push(filled(sample(op, case), reduction));
        }
        for include_self in [false, true] {
            let op = ScatterReduce {
                dim: 1,
                reduction,
                include_self,
            };
            let all = views(op).into_iter();
            samples.extend(all.map(|sample| filled(sample, reduction)));
        }
    }
    samples
}

pub(super) fn weights() -> Vec<Sample> {
    let mut samples = views(ScatterWeights {
        dim: 1,
        reduction: Some(Mean),
        include_self: true,
    });
    for reduction in ALL.map(Some).into_iter().chain([None]) {
        for include_self in [false, true] {
            for case in CASES.into_iter().filter(|&case| is_tried(case, reduction)) {
                let op = ScatterWeights {
                    dim: case.0,
                    reduction,
                    include_self: include_self && reduction.is_some(),
                };
                let sample = sample(op, case);
                samples.push(filled(sample, reduction.unwrap_or(Sum)));
                // Zeros, and equals.
                let mut equal = samples[samples.len() - 1].clone();
                equal.inputs[0].1 = Fill::Indices(3);
                if matches!(reduction, Some(Prod)) {
                    samples.push(equal);
                }
            }
        }
    }
    samples
}

/// What all three refuse.
fn rejects(op: impl Op + Copy, at_third: impl Op) -> Vec<Reject> {
    let of = |dtype, shape: [usize; 2]| Spec::contiguous(dtype, shape);
    let (f32, i64) = (DType::F32, DType::I64);
    let three = |source, index, base| vec![source, index, base];
    vec![
        Reject::new(
            at_third,
            three(of(f32, [3, 4]), of(i64, [3, 4]), of(f32, [3, 4])),
            is_attribute,
        ),
        Reject::new(
            op,
            three(of(f32, [3, 4]), of(i64, [3, 5]), of(f32, [9, 4])),
            is_shape,
        ),
        Reject::new(
            op,
            three(of(f32, [3, 4]), of(i64, [3, 4]), of(f32, [9, 5])),
            is_shape,
        ),
        Reject::new(
            op,
            three(of(f32, [3, 4]), of(f32, [3, 4]), of(f32, [9, 4])),
            is_dtype,
        ),
        Reject::new(
            op,
            three(of(f32, [3, 4]), of(i64, [3, 4]), of(DType::F16, [9, 4])),
            is_dtype,
        ),
        Reject::new(op, vec![of(f32, [3, 4]), of(i64, [3, 4])], is_arity),
    ]
}

pub(super) fn scatter_rejects() -> Vec<Reject> {
    rejects(Scatter { dim: 0 }, Scatter { dim: 2 })
}

pub(super) fn reduce_rejects() -> Vec<Reject> {
    let op = |dim| ScatterReduce {
        dim,
        reduction: Mean,
        include_self: true,
    };
    rejects(op(0), op(2))
}

pub(super) fn weights_rejects() -> Vec<Reject> {
    let op = |dim| ScatterWeights {
        dim,
        reduction: Some(Amax),
        include_self: true,
    };
    rejects(op(0), op(2))
}
