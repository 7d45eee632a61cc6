//! The plain references.

use super::{Between, Interpolate, InterpolateBackward};
use crate::Array;
use highwater_graph::{Op, Shape};

/// Hands `f` the position of each pixel of the result, that of one that it is made of, and its share.
fn for_each(
    op: &Interpolate,
    planes: usize,
    [height, width]: [usize; 2],
    mut f: impl FnMut(usize, usize, f64),
) {
    let parts = |between: Between| {
        let Between {
            first,
            second,
            share,
        } = between;
        [(first, 1.0 - share), (second, share)]
    };
    let [rows, cols] = op.size;
    for at in 0..planes * rows * cols {
        let (plane, row, col) = (at / (rows * cols), at / cols % rows, at % cols);
        for (y, down) in parts(op.between(0, row, height)) {
            for (x, across) in parts(op.between(1, col, width)) {
                f(at, (plane * height + y) * width + x, down * across);
            }
        }
    }
}

pub(super) fn forward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &Interpolate = op.downcast().expect("interpolate");
    let x = &inputs[0];
    let [n, c, h, w] = x.shape.dims().try_into().expect("images");
    let mut y = Array::from_fn(Shape::from([n, c, op.size[0], op.size[1]]), |_| 0.0);
    for_each(op, n * c, [h, w], |to, from, share| {
        y.data[to] += share * x.data[from];
    });
    vec![y]
}

pub(super) fn backward(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let op: &InterpolateBackward = op.downcast().expect("interpolate_backward");
    let g = &inputs[0];
    let [n, c, h, w] = [g.shape[0], g.shape[1], op.sides[0], op.sides[1]];
    let mut dx = Array::from_fn(Shape::from([n, c, h, w]), |_| 0.0);
    for_each(&op.forward, n * c, op.sides, |to, from, share| {
        dx.data[from] += share * g.data[to];
    });
    vec![dx]
}
