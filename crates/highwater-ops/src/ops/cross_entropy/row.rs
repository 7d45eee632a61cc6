//! Softmax of one row, vectorised.
//!
//! 64 lanes are four vectors of the widest processors, so that four sums are under way at once. Going
//! over a row twice, for its maximum and for the exponentials, costs less than rescaling sums
//! whenever the maximum grows: rows of a vocabulary are in the second cache the second time.
//!
//! An element's lane is its place in its piece modulo 64. Sums of lanes are of `f32` and are added in `f64`,
//! in their order; a dense row of `f32` is one piece, any other is copied 512 elements at a time, twice.

use crate::kernels::float::Float;
use crate::kernels::math::exp;
use crate::kernels::simd::multiversion;
use crate::kernels::strided::for_each_piece;
use highwater_graph::Layout;

/// Sums and maxima are kept in this many lanes, folded in order in the end.
const LANES: usize = 64;

multiversion! {
    /// The largest number, ignoring NaN; minus infinity if there is none.
    fn largest[I](row: &[f32]) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (blocks, rest) = row.as_chunks::<LANES>();
        for block in blocks {
            for (lane, &x) in lanes.iter_mut().zip(block) {
                *lane = if x > *lane { x } else { *lane };
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane = if x > *lane { x } else { *lane };
        }
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}

multiversion! {
    /// The sum of `exp(x - shift)`.
    fn sum_of_exp[I](row: &[f32], shift: f32) -> f64 {
        let mut lanes = [0.0_f32; LANES];
        let (blocks, rest) = row.as_chunks::<LANES>();
        for block in blocks {
            for (lane, &x) in lanes.iter_mut().zip(block) {
                *lane += exp::<I>(x - shift);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane += exp::<I>(x - shift);
        }
        lanes.into_iter().map(f64::from).sum()
    }
}

multiversion! {
    /// Replaces `x` by `exp(x - shift)` and gives the sum, as [`sum_of_exp`].
    fn exp_in_place[I](row: &mut [f32], shift: f32) -> f64 {
        let mut lanes = [0.0_f32; LANES];
        let (blocks, rest) = row.as_chunks_mut::<LANES>();
        for block in blocks {
            for (lane, x) in lanes.iter_mut().zip(block) {
                *x = exp::<I>(*x - shift);
                *lane += *x;
            }
        }
        for (lane, x) in lanes.iter_mut().zip(rest) {
            *x = exp::<I>(*x - shift);
            *lane += *x;
        }
        lanes.into_iter().map(f64::from).sum()
    }
}

/// `log(sum(exp(x))) - x[label]` of the `row`-th row of a tensor of any layout.
pub(crate) fn loss_of_row<T: Float>(
    storage: &[T],
    layout: &Layout,
    row: usize,
    label: usize,
) -> f64 {
    let width = layout.shape().last().copied().unwrap_or(1);
    let (mut max, mut of_label, mut sum) = (f32::NEG_INFINITY, 0.0, 0.0);
    for_each_piece(storage, layout, row * width, width, &mut |at, piece| {
        max = max.max(largest(piece));
        if let Some(&x) = label.checked_sub(at).and_then(|i| piece.get(i)) {
            of_label = x;
        }
    });
    for_each_piece(storage, layout, row * width, width, &mut |_, piece| {
        sum += sum_of_exp(piece, max);
    });
    sum.ln() + f64::from(max) - f64::from(of_label)
}

/// Replaces a row by the gradient of its loss times `factor`, and gives the loss.
pub(crate) fn softmax_minus_label(row: &mut [f32], label: usize, factor: f64) -> f64 {
    let (max, of_label) = (largest(row), row[label]);
    let sum = exp_in_place(row, max);
    let scale = (factor / sum) as f32;
    for x in row.iter_mut() {
        *x *= scale;
    }
    row[label] -= factor as f32;
    sum.ln() + f64::from(max) - f64::from(of_label)
}
