//! The plain references.

use super::{GridBackward, GridSample, InputBackward, Tap};
use crate::Array;
use highwater_graph::{Op, Shape};

/// Calls `f` with each place in the gradient or result, the pixel that is seen there, and where in the grid that is
/// said.
fn for_each(
    op: GridSample,
    images: &Shape,
    grid: &Array,
    mut f: impl FnMut(usize, usize, &Tap, usize),
) {
    let [channels, rows, columns] = [images[1], images[2], images[3]];
    let places = grid.shape[1] * grid.shape[2];
    for (at, xy) in grid.data.chunks_exact(2).enumerate() {
        let (image, place) = (at / places, at % places);
        for tap in op.taps([xy[0], xy[1]], [rows, columns]).iter().flatten() {
            for plane in image * channels..(image + 1) * channels {
                let pixel = (plane * rows + tap.row) * columns + tap.column;
                f(plane * places + place, pixel, tap, at);
            }
        }
    }
}

pub(super) fn forward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &GridSample = op.downcast().expect("the reference of this operation");
    let (images, grid) = (&inputs[0], &inputs[1]);
    let shape = [
        images.shape[0],
        images.shape[1],
        grid.shape[1],
        grid.shape[2],
    ];
    let mut out = Array::from_fn(shape, |_| 0.0);
    for_each(*op, &images.shape, grid, |to, pixel, tap, _| {
        out.data[to] += tap.weight * images.data[pixel];
    });
    vec![out]
}

pub(super) fn input_backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &InputBackward = op.downcast().expect("the reference of this operation");
    let (g, grid) = (&inputs[0], &inputs[1]);
    let shape = [g.shape[0], g.shape[1], op.sides[0], op.sides[1]];
    let mut out = Array::from_fn(shape, |_| 0.0);
    let shape = out.shape.clone();
    for_each(op.forward, &shape, grid, |from, pixel, tap, _| {
        out.data[pixel] += tap.weight * g.data[from];
    });
    vec![out]
}

pub(super) fn grid_backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &GridBackward = op.downcast().expect("the reference of this operation");
    let (g, images, grid) = (&inputs[0], &inputs[1], &inputs[2]);
    let mut out = Array::from_fn(grid.shape.clone(), |_| 0.0);
    for_each(op.0, &images.shape, grid, |from, pixel, tap, at| {
        for (i, slope) in tap.slopes.iter().enumerate() {
            out.data[2 * at + i] += slope * images.data[pixel] * g.data[from];
        }
    });
    vec![out]
}
