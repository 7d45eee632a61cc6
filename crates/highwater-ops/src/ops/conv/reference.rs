//! The plain references: all three are the sums of one list of products.

use super::{Conv2d, Conv2dWeight, ConvSettings, ConvTranspose2d};
use crate::Array;
use highwater_graph::{Op, Shape};

/// Shapes of `x`, the weight and `y` of a convolution.
struct Shapes<'a> {
    x: &'a Shape,
    w: &'a Shape,
    y: &'a Shape,
}

fn flat(shape: &Shape, at: [usize; 4]) -> usize {
    let pairs = shape.iter().zip(at);
    pairs.fold(0, |flat, (&extent, i)| flat * extent + i)
}

/// Where a side's pixel of `y` finds the pixel of `x` under an element of the kernel, if it is one.
fn source(
    settings: &ConvSettings,
    side: usize,
    y: usize,
    k: usize,
    extent: usize,
) -> Option<usize> {
    let at = y * settings.stride[side] + k * settings.dilation[side];
    at.checked_sub(settings.padding[side])
        .filter(|&at| at < extent)
}

/// Hands `f` the positions, in `x`, the weight and `y`, of all products.
fn for_each(settings: &ConvSettings, shapes: &Shapes<'_>, mut f: impl FnMut(usize, usize, usize)) {
    let Shapes { x, w, y } = shapes;
    let per_group = (w[0] / settings.groups).max(1);
    for at in 0..y.numel() {
        let [n, o, i, j] = [
            at / (y[1] * y[2] * y[3]),
            at / (y[2] * y[3]) % y[1],
            at / y[3] % y[2],
            at % y[3],
        ];
        for term in 0..w[1] * w[2] * w[3] {
            let [c, u, v] = [term / (w[2] * w[3]), term / w[3] % w[2], term % w[3]];
            let row = source(settings, 0, i, u, x[2]);
            let column = source(settings, 1, j, v, x[3]);
            if let (Some(row), Some(column)) = (row, column) {
                let channel = o / per_group * w[1] + c;
                f(
                    flat(x, [n, channel, row, column]),
                    flat(w, [o, c, u, v]),
                    at,
                );
            }
        }
    }
}

/// The shape that the operation infers.
fn output(op: &dyn Op, inputs: &[Array]) -> Shape {
    let specs: Vec<_> = inputs
        .iter()
        .map(|array| highwater_graph::Spec::contiguous(array.dtype, array.shape.clone()))
        .collect();
    op.infer(&specs).expect("inputs that fit")[0]
        .shape()
        .clone()
}

/// What a bias adds to images of a shape.
fn biased(shape: Shape, bias: Option<&Array>) -> Array {
    let (channels, pixels) = (shape[1], shape[2] * shape[3]);
    Array::from_fn(shape, |at| {
        bias.map_or(0.0, |bias| bias.data[at / pixels % channels])
    })
}

pub(super) fn conv(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let settings = op.downcast::<Conv2d>().expect("conv2d").settings;
    let (x, w) = (&inputs[0], &inputs[1]);
    let mut y = biased(output(op, inputs), inputs.get(2));
    let shape = y.shape.clone();
    let shapes = Shapes {
        x: &x.shape,
        w: &w.shape,
        y: &shape,
    };
    for_each(&settings, &shapes, |i, k, o| {
        y.data[o] += x.data[i] * w.data[k];
    });
    vec![y]
}

pub(super) fn transpose(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let settings = op
        .downcast::<ConvTranspose2d>()
        .expect("conv_transpose2d")
        .settings;
    let (y, w) = (&inputs[0], &inputs[1]);
    let mut x = biased(output(op, inputs), inputs.get(2));
    let shape = x.shape.clone();
    let shapes = Shapes {
        x: &shape,
        w: &w.shape,
        y: &y.shape,
    };
    for_each(&settings, &shapes, |i, k, o| {
        x.data[i] += y.data[o] * w.data[k];
    });
    vec![x]
}

pub(super) fn weight(op: &dyn Op, inputs: &[Array]) -> Vec<Array> {
    let settings = op
        .downcast::<Conv2dWeight>()
        .expect("conv2d_weight")
        .settings;
    let (x, y) = (&inputs[0], &inputs[1]);
    let mut w = Array::from_fn(output(op, inputs), |_| 0.0);
    let shape = w.shape.clone();
    let shapes = Shapes {
        x: &x.shape,
        w: &shape,
        y: &y.shape,
    };
    for_each(&settings, &shapes, |i, k, o| {
        w.data[k] += x.data[i] * y.data[o];
    });
    vec![w]
}
