//! Samples and rejects of pointwise operations.

use crate::table::{f32_view, f32s, is_arity, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Layout, Op, OpError, Shape, Spec};
use std::sync::Arc;

/// Samples that every operation of one input should pass, filled with `fill`.
pub(crate) fn unary_samples(op: &(impl Op + Clone), fill: Fill) -> Vec<Sample> {
    layouts()
        .into_iter()
        .map(|layout| sample(op, &[layout], &[fill]))
        .collect()
}

/// Samples that every operation of two inputs should pass, filled with `fills`.
pub(crate) fn binary_samples(op: &(impl Op + Clone), fills: [Fill; 2]) -> Vec<Sample> {
    let mut samples: Vec<Sample> = layouts()
        .into_iter()
        .map(|layout| {
            let other = Layout::contiguous(layout.shape().clone());
            sample(op, &[layout, other], &fills)
        })
        .collect();
    let broadcasts: [[&[usize]; 2]; 7] = [
        [&[2, 5, 37], &[37]],
        [&[37], &[2, 5, 37]],
        [&[2, 1, 48], &[2, 5, 1]],
        [&[40, 130], &[]],
        [&[3, 1, 5, 1], &[4, 1, 7]],
        [&[0, 5], &[5]],
        [&[130, 1], &[1, 70]],
    ];
    samples.extend(broadcasts.map(|shapes| sample(op, &shapes.map(Layout::contiguous), &fills)));
    samples
}

/// Samples whose gradients are sums of what several nodes have rounded.
pub(crate) fn of_many_nodes(samples: Vec<Sample>) -> Vec<Sample> {
    let wider = samples.into_iter().map(|sample| sample.tolerance(4e-6));
    wider.collect()
}

/// Samples that every operation of three inputs should pass, filled with `fills`.
pub(crate) fn ternary_samples(op: &(impl Op + Clone), fills: [Fill; 3]) -> Vec<Sample> {
    let like = |layout: &Layout| Layout::contiguous(layout.shape().clone());
    let mut samples: Vec<Sample> = layouts()
        .into_iter()
        .map(|layout| sample(op, &[like(&layout), layout.clone(), layout], &fills))
        .collect();
    let broadcasts: [[&[usize]; 3]; 5] = [
        [&[2, 5, 37], &[37], &[5, 1]],
        [&[37], &[2, 5, 37], &[]],
        [&[40, 1], &[40, 130], &[130]],
        [&[0, 5], &[5], &[1, 1]],
        [&[], &[130, 1], &[1, 70]],
    ];
    samples.extend(broadcasts.map(|shapes| sample(op, &shapes.map(Layout::contiguous), &fills)));
    samples
}

/// Samples of an operation of `N` inputs that takes `I64` as well.
pub(crate) fn whole_samples<const N: usize>(op: &(impl Op + Clone)) -> Vec<Sample> {
    let shapes: [&[usize]; N] = std::array::from_fn(|i| if i == 0 { &[5, 37][..] } else { &[37] });
    let of = |layouts: [Layout; N]| {
        let mut sample = sample(op, &layouts, &[Fill::Indices(100); N]);
        for (spec, _) in &mut sample.inputs {
            spec.dtype = DType::I64;
        }
        sample
    };
    let strided = Layout::strided([37, 130], &[1, 37], 0);
    vec![
        of(shapes.map(Layout::contiguous)),
        of(std::array::from_fn(|_| strided.clone())),
    ]
}

fn sample(op: &(impl Op + Clone), layouts: &[Layout], fills: &[Fill]) -> Sample {
    let spec = |layout: &Layout| f32_view(layout.clone());
    let inputs = layouts.iter().map(spec).zip(fills.iter().copied());
    Sample {
        op: Arc::new(op.clone()),
        inputs: inputs.collect(),
        tolerance: 1e-6,
    }
}

/// Odd sizes, more than a block, more than a task, views of every kind, a scalar and nothing.
fn layouts() -> Vec<Layout> {
    vec![
        Layout::contiguous([65]),
        Layout::contiguous([3, 5, 37]),
        Layout::contiguous([130, 257]),
        Layout::strided([37, 130], &[1, 37], 0),
        Layout::strided([9, 4, 33], &[300, 33, 1], 7),
        Layout::strided([4, 33, 9], &[9, 0, 1], 0),
        Layout::strided([70, 31], &[64, 2], 1),
        Layout::contiguous(Shape::scalar()),
        Layout::contiguous([0, 5]),
    ]
}

/// What an operation of `N` inputs must refuse.
pub(crate) fn rejects<const N: usize>(op: &(impl Op + Clone)) -> Vec<Reject> {
    let reject = |inputs: Vec<Spec>, error| Reject::new(op.clone(), inputs, error);
    let mut rejects = vec![
        reject(vec![f32s([3]); N + 1], is_arity),
        reject(vec![f32s([3]); N - 1], is_arity),
        reject(vec![Spec::contiguous(DType::I16, [3]); N], |error| {
            matches!(
                error,
                OpError::DType {
                    got: DType::I16,
                    ..
                }
            )
        }),
    ];
    if N > 1 {
        let mut shapes = vec![f32s([2, 3]); N];
        shapes[1] = f32s([2]);
        rejects.push(reject(shapes, is_shape));
    }
    rejects
}
