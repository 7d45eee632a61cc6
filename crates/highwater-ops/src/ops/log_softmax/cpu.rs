//! The fast kernels: a row at a time along the last dimension, a tile of lines along others.
//!
//! A row is in the first cache while it is gone over for its maximum, for the sum of exponentials, which are
//! not kept, and for the differences; one logarithm a row. Backward adds the gradients up and makes the
//! exponentials from the output, so that no softmax is kept for it. Maxima and sums are in 32 lanes, two
//! vectors with AVX-512 and four with AVX2, and an element's lane is its place modulo 32; lanes are added by
//! halves. Along other dimensions lanes are lines (`lines/`), added element after element. Rows run above
//! 60% of the pace of a copy, columns at 12% (with AVX2, BENCHMARKS.md).

use super::{LogSoftmax, LogSoftmaxBackward};
use crate::kernels::blocks::BLOCK;
use crate::kernels::lines::{OfLine, OfPair};
use crate::kernels::math;
use crate::kernels::simd::{multiversion, sum_lanes};
use crate::ops::softmax::cpu::{LANES, max};

impl OfLine for LogSoftmax {
    fn dim(&self) -> usize {
        self.dim
    }

    fn row(&self, x: &mut [f32]) {
        log_softmax(x);
    }

    fn columns(&self, x: &mut [f32], width: usize) {
        log_softmax_columns(x, width);
    }
}

impl OfPair for LogSoftmaxBackward {
    fn dim(&self) -> usize {
        self.dim
    }

    fn row(&self, g: &mut [f32], y: &[f32]) {
        backward(g, y);
    }

    fn columns(&self, g: &mut [f32], y: &[f32], width: usize) {
        backward_columns(g, y, width);
    }
}

multiversion! {
    /// Turns `x` into the logarithm of its softmax.
    fn log_softmax[I](x: &mut [f32]) {
        let max = max(x);
        let mut sums = [0.0; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (&x, sum) in chunk.iter().zip(&mut sums) {
                *sum += math::exp::<I>(x - max);
            }
        }
        for (&x, sum) in rest.iter().zip(&mut sums) {
            *sum += math::exp::<I>(x - max);
        }
        let log = math::log::<I>(sum_lanes(sums));
        for x in x {
            *x = *x - max - log;
        }
    }
}

multiversion! {
    /// [`log_softmax`] of each column of rows of `width`, at most [`BLOCK`].
    fn log_softmax_columns[I](x: &mut [f32], width: usize) {
        let (mut max, mut sums) = ([f32::NEG_INFINITY; BLOCK], [0.0_f32; BLOCK]);
        let (max, sums) = (&mut max[..width], &mut sums[..width]);
        for row in x.chunks_exact(width) {
            for (max, &x) in max.iter_mut().zip(row) {
                *max = if x > *max { x } else { *max };
            }
        }
        for row in x.chunks_exact(width) {
            for ((&x, &max), sum) in row.iter().zip(&*max).zip(&mut *sums) {
                *sum += math::exp::<I>(x - max);
            }
        }
        for sum in &mut *sums {
            *sum = math::log::<I>(*sum);
        }
        for row in x.chunks_exact_mut(width) {
            for ((x, &max), &log) in row.iter_mut().zip(&*max).zip(&*sums) {
                *x = *x - max - log;
            }
        }
    }
}

multiversion! {
    /// Turns `g` into the gradient of the input.
    fn backward[I](g: &mut [f32], y: &[f32]) {
        let mut sums = [0.0; LANES];
        let (chunks, rest) = g.as_chunks::<LANES>();
        for chunk in chunks {
            for (sum, &g) in sums.iter_mut().zip(chunk) {
                *sum += g;
            }
        }
        for (sum, &g) in sums.iter_mut().zip(rest) {
            *sum += g;
        }
        let sum = sum_lanes(sums);
        for (g, &y) in g.iter_mut().zip(y) {
            *g = I::fma(-math::exp::<I>(y), sum, *g);
        }
    }
}

multiversion! {
    /// [`backward`] of each column of rows of `width`, at most [`BLOCK`].
    fn backward_columns[I](g: &mut [f32], y: &[f32], width: usize) {
        let mut sums = [0.0_f32; BLOCK];
        let sums = &mut sums[..width];
        for row in g.chunks_exact(width) {
            for (sum, &g) in sums.iter_mut().zip(row) {
                *sum += g;
            }
        }
        for (g, y) in g.chunks_exact_mut(width).zip(y.chunks_exact(width)) {
            for ((g, &y), &sum) in g.iter_mut().zip(y).zip(&*sums) {
                *g = I::fma(-math::exp::<I>(y), sum, *g);
            }
        }
    }
}
