//! The plain references.

use super::average::{AvgPool2d, AvgPool2dBackward};
use super::maximum::{MaxPool2d, windows_of};
use super::windows::{Window, Windows};
use crate::Array;
use highwater_graph::{DType, Op, Shape, Spec};

/// The shapes of the outputs that the operation infers.
fn outputs(op: &dyn Op, inputs: &[Array]) -> Vec<Spec> {
    let specs: Vec<Spec> = inputs
        .iter()
        .map(|array| Spec::contiguous(array.dtype, array.shape.clone()))
        .collect();
    op.infer(&specs).expect("inputs that fit").into_vec()
}

/// Hands `f`, for each element of `pooled`, its position, the first position of its image in tensors of
/// `sides`, and its window.
fn for_each(
    windows: &Windows,
    pooled: &Shape,
    sides: [usize; 2],
    mut f: impl FnMut(usize, usize, [Window; 2]),
) {
    let places = pooled[2] * pooled[3];
    for at in 0..pooled.numel() {
        let (plane, place) = (at / places, at % places);
        let window = [
            windows.at(0, place / pooled[3], sides[0]),
            windows.at(1, place % pooled[3], sides[1]),
        ];
        f(at, plane * sides[0] * sides[1], window);
    }
}

/// Positions in an image of the elements of a window, and their places in it.
fn elements(windows: &Windows, [rows, cols]: [Window; 2], width: usize) -> Vec<(usize, usize)> {
    let columns = windows.columns(cols);
    let row = rows.pixels().enumerate();
    row.flat_map(|(i, y)| {
        cols.pixels().enumerate().map(move |(j, x)| {
            let place = (rows.skipped + i) * columns + cols.skipped + j;
            (y * width + x, place)
        })
    })
    .collect()
}

pub(super) fn maximum(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let windows = op.downcast::<MaxPool2d>().expect("max_pool2d").windows;
    let x = &inputs[0];
    let specs = outputs(op, inputs);
    let mut y = Array::from_fn(specs[0].shape().clone(), |_| f64::NEG_INFINITY);
    let mut places = Array::from_fn(specs[1].shape().clone(), |_| 0.0);
    let shape = y.shape.clone();
    for_each(
        &windows,
        &shape,
        [x.shape[2], x.shape[3]],
        |at, plane, window| {
            for (i, (position, place)) in elements(&windows, window, x.shape[3])
                .into_iter()
                .enumerate()
            {
                let value = x.data[plane + position];
                if i == 0 || value > y.data[at] || value.is_nan() {
                    (y.data[at], places.data[at]) = (value, place as f64);
                }
            }
        },
    );
    places.dtype = specs[1].dtype;
    vec![y, places]
}

/// Positions of the elements that were the largest.
fn largest(windows: &Windows, places: &Array, sides: [usize; 2]) -> Vec<usize> {
    let mut positions = vec![0; places.data.len()];
    for_each(windows, &places.shape, sides, |at, plane, window| {
        let found = elements(windows, window, sides[1])
            .into_iter()
            .find(|&(_, place)| place == places.data[at] as usize);
        positions[at] = plane + found.map_or(0, |(position, _)| position);
    });
    positions
}

pub(super) fn scatter(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let (g, places) = (&inputs[0], &inputs[1]);
    let shape = outputs(op, inputs)[0].shape().clone();
    let sides = [shape[2], shape[3]];
    let mut dx = Array::from_fn(shape, |_| 0.0);
    let positions = largest(&windows_of(op), places, sides);
    for (g, at) in g.data.iter().zip(positions) {
        dx.data[at] += g;
    }
    vec![dx]
}

pub(super) fn select(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let (x, places) = (&inputs[0], &inputs[1]);
    let positions = largest(&windows_of(op), places, [x.shape[2], x.shape[3]]);
    let mut y = Array::from_fn(places.shape.clone(), |at| x.data[positions[at]]);
    y.dtype = DType::F32;
    vec![y]
}

/// What the sum of a window is divided by.
fn divisor(pool: &AvgPool2d, [rows, cols]: [Window; 2]) -> f64 {
    let count = if pool.count_include_pad {
        rows.padded * cols.padded
    } else {
        rows.len() * cols.len()
    };
    count as f64
}

pub(super) fn average(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let pool: &AvgPool2d = op.downcast().expect("avg_pool2d");
    let x = &inputs[0];
    let mut y = Array::from_fn(outputs(op, inputs)[0].shape().clone(), |_| 0.0);
    let shape = y.shape.clone();
    for_each(
        &pool.windows,
        &shape,
        [x.shape[2], x.shape[3]],
        |at, plane, window| {
            for (position, _) in elements(&pool.windows, window, x.shape[3]) {
                y.data[at] += x.data[plane + position] / divisor(pool, window);
            }
        },
    );
    vec![y]
}

pub(super) fn share(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let AvgPool2dBackward { pool, sides } = op.downcast().expect("avg_pool2d_backward");
    let g = &inputs[0];
    let mut dx = Array::from_fn(outputs(op, inputs)[0].shape().clone(), |_| 0.0);
    for_each(&pool.windows, &g.shape, *sides, |at, plane, window| {
        for (position, _) in elements(&pool.windows, window, sides[1]) {
            dx.data[plane + position] += g.data[at] / divisor(pool, window);
        }
    });
    vec![dx]
}
