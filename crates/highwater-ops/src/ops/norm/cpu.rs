//! What the fast kernel does with a row and with a column of elements, for the common exponents.
//!
//! Terms are added as in `sum_block`: 32 lanes of `f64`, by halves; squares are exact there, since they are
//! products of two `f32`. Maxima are kept in 32 lanes of `f32`, in whatever order, as that changes no
//! maximum. Blocks come one after the other from `fold.rs`. Other exponents than 0, 1, 2 and infinity are
//! taken term by term, without vectors.

use crate::kernels::simd::{multiversion, sum_lanes};

macro_rules! terms {
    ($($row:ident, $column:ident: |$x:ident| $term:expr;)*) => {$(
        multiversion! {
            /// The sum of the terms of elements.
            pub(super) fn $row[I](x: &[f32]) -> f64 {
                const LANES: usize = 32;
                let mut lanes = [0.0_f64; LANES];
                let (chunks, rest) = x.as_chunks::<LANES>();
                for chunk in chunks {
                    for (lane, &x) in lanes.iter_mut().zip(chunk) {
                        let $x = f64::from(x);
                        *lane += $term;
                    }
                }
                for (lane, &x) in lanes.iter_mut().zip(rest) {
                    let $x = f64::from(x);
                    *lane += $term;
                }
                sum_lanes(lanes)
            }
        }

        multiversion! {
            /// Adds the term of an element each to neighbouring sums.
            pub(super) fn $column[I](sums: &mut [f64], x: &[f32]) {
                for (sum, &x) in sums.iter_mut().zip(x) {
                    let $x = f64::from(x);
                    *sum += $term;
                }
            }
        }
    )*};
}

terms! {
    count, add_counts: |x| f64::from(u8::from(x != 0.0));
    sum, add: |x| x.abs();
    squares, add_squares: |x| x * x;
}

multiversion! {
    /// The largest absolute value; NaN if there is one.
    pub(super) fn largest[I](x: &[f32]) -> f64 {
        const LANES: usize = 32;
        let mut lanes = [0.0_f32; LANES];
        let larger = |lane: &mut f32, x: f32| {
            *lane = if (x > *lane) | x.is_nan() { x } else { *lane };
        };
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                larger(lane, x.abs());
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            larger(lane, x.abs());
        }
        let mut largest = 0.0;
        for lane in lanes {
            larger(&mut largest, lane);
        }
        f64::from(largest)
    }
}

multiversion! {
    /// Raises neighbouring numbers to the absolute value of an element each, if that is larger or NaN.
    pub(super) fn raise[I](largest: &mut [f64], x: &[f32]) {
        for (largest, &x) in largest.iter_mut().zip(x) {
            let x = f64::from(x.abs());
            *largest = if (x > *largest) | x.is_nan() { x } else { *largest };
        }
    }
}
