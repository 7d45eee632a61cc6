//! What the laws try.

use super::Rotary;
use crate::table::{f32_strided, f32_view, f32s, is_arity, is_dtype, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Layout, Spec};
use std::sync::Arc;

/// Both kinds of pairs, both ways.
const ALL: [Rotary; 4] = [
    Rotary {
        interleaved: false,
        inverse: false,
    },
    Rotary {
        interleaved: false,
        inverse: true,
    },
    Rotary {
        interleaved: true,
        inverse: false,
    },
    Rotary {
        interleaved: true,
        inverse: true,
    },
];

/// Inputs and tables: whole rows and parts of them, tables of positions, of each row of a batch, and of
/// all rows; heads as views of a packed projection.
fn shapes() -> Vec<(Spec, Spec)> {
    let heads = Layout::contiguous([2, 5, 3 * 4 * 16]).reshape(&[2, 5, 12, 16].into());
    let queries = heads
        .and_then(|heads| heads.narrow(2, 4, 4))
        .and_then(|heads| heads.transpose(1, 2));
    let columns = f32_strided([7, 4], &[1, 7], 0);
    vec![
        (f32s([5, 8]), f32s([5, 4])),
        (f32s([2, 3, 7, 10]), f32s([7, 5])),
        (f32s([2, 3, 7, 10]), f32s([7, 3])),
        (f32s([2, 3, 7, 10]), f32s([2, 1, 7, 5])),
        (f32s([2, 3, 7, 8]), columns),
        (f32s([300, 4, 130]), f32s([4, 65])),
        (f32s([300, 4, 64]), f32s([1, 32])),
        (f32s([9, 7]), f32s([9, 0])),
        (f32s([0, 8]), f32s([0, 4])),
        (f32s([8]), f32s([4])),
        (queries.map_or(f32s([2, 4, 5, 16]), f32_view), f32s([5, 8])),
    ]
}

pub(super) fn samples() -> Vec<Sample> {
    let sample = |op: Rotary, (x, table): (Spec, Spec)| Sample {
        op: Arc::new(op),
        inputs: vec![
            (x, Fill::Normal(1.0)),
            (table.clone(), Fill::Uniform(-1.0, 1.0)),
            (table, Fill::Uniform(-1.0, 1.0)),
        ],
        tolerance: 1e-6,
    };
    let all = ALL.into_iter();
    all.flat_map(|op| shapes().into_iter().map(move |shapes| sample(op, shapes)))
        .collect()
}

pub(super) fn rejects() -> Vec<Reject> {
    let reject = |inputs: Vec<Spec>, error| Reject::new(ALL[0], inputs, error);
    let of = |x: &[usize], cos: &[usize], sin: &[usize]| vec![f32s(x), f32s(cos), f32s(sin)];
    let half = Spec::contiguous(DType::BF16, [5, 4]);
    vec![
        reject(vec![f32s([5, 8]); 2], is_arity),
        reject(of(&[5, 8], &[5, 4], &[5, 3]), is_shape),
        reject(of(&[5, 8], &[5, 5], &[5, 5]), is_shape),
        reject(of(&[5, 8], &[4, 4], &[4, 4]), is_shape),
        reject(of(&[5, 8], &[], &[]), is_shape),
        reject(of(&[], &[4], &[4]), is_shape),
        reject(of(&[5, 8], &[2, 5, 4], &[2, 5, 4]), is_shape),
        reject(vec![f32s([5, 8]), half.clone(), half], is_dtype),
        reject(vec![Spec::contiguous(DType::I64, [5, 8]); 3], is_dtype),
    ]
}
