//! The fast kernels: a row at a time along the last dimension, a tile of lines along others.
//!
//! A row is in the first cache while it is gone over for its maximum, for exponentials and their sum,
//! and for the division, so that memory sees one reading and one writing. Sums and maxima are kept in
//! 32 lanes, which is two or more vectors on any processor: one would wait for itself. An element's lane is
//! its place modulo 32, and sums of lanes are added by halves, whatever the threads. What is left is
//! the exponential's polynomial (85% of the pace of a copy backward, where there is none, and half of
//! it forward).

use super::{Softmax, SoftmaxBackward};
use crate::kernels::blocks::BLOCK;
use crate::kernels::lines::{OfLine, OfPair};
use crate::kernels::math;
use crate::kernels::simd::{multiversion, sum_lanes};

pub(crate) const LANES: usize = 32;

impl OfLine for Softmax {
    fn dim(&self) -> usize {
        self.dim
    }

    fn row(&self, x: &mut [f32]) {
        softmax(x);
    }

    fn columns(&self, x: &mut [f32], width: usize) {
        softmax_columns(x, width);
    }
}

impl OfPair for SoftmaxBackward {
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
    /// Turns `x` into its softmax.
    fn softmax[I](x: &mut [f32]) {
        let max = max(x);
        let mut sums = [0.0; LANES];
        let (chunks, rest) = x.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for (x, sum) in chunk.iter_mut().zip(&mut sums) {
                *x = math::exp::<I>(*x - max);
                *sum += *x;
            }
        }
        for (x, sum) in rest.iter_mut().zip(&mut sums) {
            *x = math::exp::<I>(*x - max);
            *sum += *x;
        }
        let scale = 1.0 / sum_lanes(sums);
        for x in x {
            *x *= scale;
        }
    }
}

/// The largest element; which of several NaNs, or whether any, is left open.
#[expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]
#[inline(always)]
pub(crate) fn max(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    let larger = |lane: &mut f32, x: f32| *lane = if x > *lane { x } else { *lane };
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            larger(lane, x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        larger(lane, x);
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

multiversion! {
    /// Turns `g` into the gradient of the input.
    fn backward[I](g: &mut [f32], y: &[f32]) {
        let mut dots = [0.0; LANES];
        let (g_chunks, g_rest) = g.as_chunks::<LANES>();
        let (y_chunks, y_rest) = y.as_chunks::<LANES>();
        for (g, y) in g_chunks.iter().zip(y_chunks) {
            for ((dot, &g), &y) in dots.iter_mut().zip(g).zip(y) {
                *dot = I::fma(g, y, *dot);
            }
        }
        for ((dot, &g), &y) in dots.iter_mut().zip(g_rest).zip(y_rest) {
            *dot = I::fma(g, y, *dot);
        }
        let dot = sum_lanes(dots);
        for (g, &y) in g.iter_mut().zip(y) {
            *g = y * (*g - dot);
        }
    }
}

multiversion! {
    /// [`softmax`] of each column of rows of `width`, at most [`BLOCK`].
    fn softmax_columns[I](x: &mut [f32], width: usize) {
        let (mut max, mut sums) = ([f32::NEG_INFINITY; BLOCK], [0.0_f32; BLOCK]);
        let (max, sums) = (&mut max[..width], &mut sums[..width]);
        for row in x.chunks_exact(width) {
            for (max, &x) in max.iter_mut().zip(row) {
                *max = if x > *max { x } else { *max };
            }
        }
        for row in x.chunks_exact_mut(width) {
            for ((x, &max), sum) in row.iter_mut().zip(&*max).zip(&mut *sums) {
                *x = math::exp::<I>(*x - max);
                *sum += *x;
            }
        }
        for sum in &mut *sums {
            *sum = 1.0 / *sum;
        }
        for row in x.chunks_exact_mut(width) {
            for (x, &scale) in row.iter_mut().zip(&*sums) {
                *x *= scale;
            }
        }
    }
}

multiversion! {
    /// [`backward`] of each column of rows of `width`, at most [`BLOCK`].
    fn backward_columns[I](g: &mut [f32], y: &[f32], width: usize) {
        let mut dots = [0.0_f32; BLOCK];
        let dots = &mut dots[..width];
        for (g, y) in g.chunks_exact(width).zip(y.chunks_exact(width)) {
            for ((dot, &g), &y) in dots.iter_mut().zip(g).zip(y) {
                *dot = I::fma(g, y, *dot);
            }
        }
        for (g, y) in g.chunks_exact_mut(width).zip(y.chunks_exact(width)) {
            for ((g, &y), &dot) in g.iter_mut().zip(y).zip(&*dots) {
                *g = y * (*g - dot);
            }
        }
    }
}
