//! What the laws try of operations along a dimension.

use crate::table::{f32_view, f32s, is_arity, is_attribute, is_dtype, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Layout, Op, Spec};
use std::sync::Arc;

/// Samples of an operation along a dimension: the last and others, short and long lines, many and few,
/// views of every kind, a scalar and nothing.
pub(crate) fn line_samples<O: Op>(op: impl Fn(usize) -> O, fills: &[Fill]) -> Vec<Sample> {
    let layouts = [
        (Layout::contiguous([5, 37]), 1),
        (Layout::contiguous([2, 3, 5, 33]), 3),
        (Layout::contiguous([7, 1]), 1),
        (Layout::contiguous([2, 1025]), 1),
        (Layout::contiguous([130, 270]), 1),
        (Layout::contiguous([64]), 0),
        (Layout::contiguous([0, 5]), 1),
        (Layout::contiguous([3, 0]), 1),
        (Layout::strided([6, 37], &[1, 6], 0), 1),
        (Layout::strided([9, 65], &[130, 2], 3), 1),
        (Layout::strided([4, 9, 33], &[33, 0, 1], 0), 2),
        (Layout::contiguous([37, 5]), 0),
        (Layout::contiguous([3, 130, 70]), 1),
        (Layout::contiguous([2, 9, 5, 33]), 1),
        (Layout::contiguous([3, 2000]), 0),
        (Layout::contiguous([700, 40]), 0),
        (Layout::contiguous([0, 5]), 0),
        (Layout::strided([37, 6], &[1, 37], 0), 0),
        (Layout::strided([9, 4, 33], &[33, 0, 1], 2), 0),
        (Layout::contiguous([]), 0),
    ];
    let sample = |(layout, dim): (Layout, usize)| {
        let dense = f32s(layout.shape().clone());
        let view = f32_view(layout);
        // Long lines beside each other are summed one element after the other.
        let is_long = dim == 0 && view.shape().first() > Some(&500);
        let specs = std::iter::once(view).chain(std::iter::repeat(dense));
        Sample {
            op: Arc::new(op(dim)),
            inputs: specs.zip(fills.iter().copied()).collect(),
            tolerance: if is_long { 2e-5 } else { 2e-6 },
        }
    };
    let mut samples: Vec<Sample> = layouts.map(sample).into();
    let large = [1, 0].map(|dim| {
        let mut large = sample((Layout::contiguous([4, 48]), dim));
        large.inputs[0].1 = Fill::Normal(100.0);
        large.tolerance = 2e-5;
        large
    });
    samples.extend(large);
    samples
}

/// What an operation along a dimension must refuse.
pub(crate) fn line_rejects<O: Op>(op: impl Fn(usize) -> O, arity: usize) -> Vec<Reject> {
    let reject = |dim, inputs, error| Reject::new(op(dim), inputs, error);
    let mut rejects = vec![
        reject(2, vec![f32s([2, 3]); arity], is_attribute),
        reject(1, vec![f32s([]); arity], is_attribute),
        reject(0, vec![f32s([3]); arity + 1], is_arity),
        reject(0, vec![Spec::contiguous(DType::I16, [3]); arity], is_dtype),
    ];
    if arity == 2 {
        rejects.push(reject(0, vec![f32s([2, 3]), f32s([3])], is_shape));
    }
    rejects
}
