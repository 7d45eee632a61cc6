//! What the fast kernel does with a row and with a column of elements.
//!
//! Along a row a block of 1,024 elements is gone over twice, for its mean and for squared differences from
//! that, the second time through the first cache: memory sees it once, and no digits are lost to a mean that
//! is large beside the differences. Both are in 32 lanes of `f64`, added by halves; what blocks became is
//! joined in their order, by mean, number and squares. Side by side means and squares move with each row, in
//! `f64`; one over the number of rows is divided once for all of them. Columns run at 44% of the pace of a
//! copy (with AVX2, BENCHMARKS.md), rows above 60%.

use crate::kernels::simd::{multiversion, sum_lanes};

multiversion! {
    /// The sum of squared differences from a number.
    pub(super) fn squares[I](x: &[f32], mean: f64) -> f64 {
        const LANES: usize = 32;
        let mut lanes = [0.0_f64; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                let difference = f64::from(x) - mean;
                *lane += difference * difference;
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            let difference = f64::from(x) - mean;
            *lane += difference * difference;
        }
        sum_lanes(lanes)
    }
}

multiversion! {
    /// Takes one more element into neighbouring means and sums of squares; `share` is one over how many
    /// there are now.
    pub(super) fn column[I](mean: &mut [f64], squares: &mut [f64], share: f64, x: &[f32]) {
        for ((mean, squares), &x) in mean.iter_mut().zip(squares).zip(x) {
            let before = f64::from(x) - *mean;
            *mean += before * share;
            *squares += before * (f64::from(x) - *mean);
        }
    }
}
