//! What the laws try.

use super::{Gather, ScatterAdd};
use crate::table::{is_arity, is_attribute, is_dtype, is_shape};
use crate::{Fill, Reject, Sample};
use highwater_graph::{DType, Layout, Spec};

fn view(dtype: DType, shape: &[usize], strides: &[usize], offset: usize) -> Spec {
    let layout = Layout::strided(shape, strides, offset);
    Spec { dtype, layout }
}

/// Dimensions, the extent that indices are for, and the shapes of indices.
const CASES: [(usize, usize, &[usize]); 12] = [
    (1, 11, &[5, 37]),
    (0, 9, &[20, 37]),
    (1, 7, &[3, 5, 33]),
    (0, 70, &[130, 200]),
    (1, 300, &[70, 130]),
    (0, 64, &[3000]),
    (2, 4, &[2, 3, 5, 6]),
    (0, 3, &[0, 5]),
    (1, 3, &[0, 5]),
    (1, 3, &[4, 0]),
    (0, 1, &[]),
    (0, 5, &[2000]),
];

fn with_extent(shape: &[usize], dim: usize, extent: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if let Some(own) = shape.get_mut(dim) {
        *own = extent;
    }
    shape
}

pub(super) fn gather() -> Vec<Sample> {
    let of = |(dim, extent, shape): (usize, usize, &[usize])| {
        let index = Spec::contiguous(DType::I64, shape);
        let x = with_extent(shape, dim, extent);
        Sample::new(Gather { dim }, &[&x, shape])
            .input(1, index, Fill::Indices(extent))
            .tolerance(0.0)
    };
    let index = |shape: &[usize], strides: &[usize]| view(DType::U32, shape, strides, 2);
    let whole = |(dtype, of_index)| {
        let fill = Fill::Indices(if dtype == DType::Bool { 2 } else { 100 });
        let index = Spec::contiguous(of_index, [4, 9]);
        of((1, 5, &[4, 9]))
            .input(0, Spec::contiguous(dtype, [4, 5]), fill)
            .input(1, index, Fill::Indices(5))
    };
    let mut samples: Vec<Sample> = CASES.into_iter().map(of).collect();
    samples.extend([
        // As index_select: one index for all columns, or rows.
        of((0, 11, &[30, 5, 7])).input(1, index(&[30, 5, 7], &[1, 0, 0]), Fill::Indices(11)),
        of((1, 11, &[3, 30, 70])).input(1, index(&[3, 30, 70], &[0, 1, 0]), Fill::Indices(11)),
        of((1, 11, &[40, 30])).input(1, index(&[40, 30], &[0, 1]), Fill::Indices(11)),
        of((1, 9, &[30, 20])).input(1, index(&[30, 20], &[1, 30]), Fill::Indices(9)),
        // Tables that lie otherwise.
        of((0, 9, &[20, 37])).input(
            0,
            view(DType::F32, &[9, 37], &[1, 10], 3),
            Fill::Normal(1.0),
        ),
        of((1, 9, &[3, 20, 4, 5])).input(
            0,
            view(DType::F32, &[3, 9, 4, 5], &[4, 12, 1, 108], 0),
            Fill::Normal(1.0),
        ),
    ]);
    let dtypes = [DType::I64, DType::I16, DType::U32, DType::U8, DType::Bool];
    let pairs = dtypes.map(|dtype| [(dtype, DType::I64), (dtype, DType::U32)]);
    samples.extend(pairs.into_iter().flatten().map(whole));
    samples
}

pub(super) fn scatter_add() -> Vec<Sample> {
    let of = |(dim, extent, shape): (usize, usize, &[usize]), accumulate| {
        let index = Spec::contiguous(DType::I64, shape);
        let base = with_extent(shape, dim, extent);
        let op = ScatterAdd {
            dim,
            extent,
            accumulate,
        };
        let shapes = [shape, shape, &base];
        let inputs = if accumulate { 3 } else { 2 };
        // Thousands of elements may be one sum.
        let tolerance = if shape.len() == 1 { 3e-4 } else { 1e-5 };
        Sample::new(op, &shapes[..inputs])
            .input(1, index, Fill::Indices(extent))
            .tolerance(tolerance)
    };
    let index = |shape: &[usize], strides: &[usize]| view(DType::U32, shape, strides, 2);
    let mut samples = Vec::new();
    for (i, case) in CASES.into_iter().enumerate() {
        samples.push(of(case, i % 2 == 0));
        samples.push(of(case, i % 2 == 1));
    }
    samples.extend([
        of((0, 11, &[30, 5, 7]), true).input(1, index(&[30, 5, 7], &[1, 0, 0]), Fill::Indices(11)),
        of((1, 11, &[3, 30, 70]), false).input(
            1,
            index(&[3, 30, 70], &[0, 1, 0]),
            Fill::Indices(11),
        ),
        of((1, 9, &[30, 20]), false).input(1, index(&[30, 20], &[1, 30]), Fill::Indices(9)),
        of((0, 9, &[20, 37]), true)
            .input(
                0,
                view(DType::F32, &[20, 37], &[1, 20], 3),
                Fill::Normal(1.0),
            )
            .input(
                2,
                view(DType::F32, &[9, 37], &[1, 10], 3),
                Fill::Normal(1.0),
            ),
        of((0, 0, &[0, 5]), false),
    ]);
    samples
}

pub(super) fn gather_rejects() -> Vec<Reject> {
    let reject = |dim, inputs, error| Reject::new(Gather { dim }, inputs, error);
    let of = |dtype, shape: [usize; 2]| Spec::contiguous(dtype, shape);
    let (f32, i64) = (DType::F32, DType::I64);
    vec![
        reject(2, vec![of(f32, [3, 4]), of(i64, [3, 4])], is_attribute),
        reject(1, vec![of(f32, [3, 4]), of(i64, [2, 4])], is_shape),
        reject(1, vec![of(f32, [3, 4]), of(f32, [3, 4])], is_dtype),
        reject(1, vec![of(f32, [3, 4])], is_arity),
    ]
}

pub(super) fn scatter_add_rejects() -> Vec<Reject> {
    let reject = |dim, accumulate, inputs, error| {
        Reject::new(
            ScatterAdd {
                dim,
                extent: 9,
                accumulate,
            },
            inputs,
            error,
        )
    };
    let of = |dtype, shape: [usize; 2]| Spec::contiguous(dtype, shape);
    let (f32, i64) = (DType::F32, DType::I64);
    vec![
        reject(
            2,
            false,
            vec![of(f32, [3, 4]), of(i64, [3, 4])],
            is_attribute,
        ),
        reject(0, false, vec![of(f32, [3, 4]), of(i64, [3, 5])], is_shape),
        reject(
            0,
            true,
            vec![of(f32, [3, 4]), of(i64, [3, 4]), of(f32, [8, 4])],
            is_shape,
        ),
        reject(
            0,
            true,
            vec![of(f32, [3, 4]), of(i64, [3, 4]), of(DType::F16, [9, 4])],
            is_dtype,
        ),
        reject(0, false, vec![of(i64, [3, 4]), of(i64, [3, 4])], is_dtype),
        reject(0, true, vec![of(f32, [3, 4]), of(i64, [3, 4])], is_arity),
    ]
}
