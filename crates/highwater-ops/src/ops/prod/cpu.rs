//! What the fast kernel does with a row and with a column of elements.
//!
//! Along a row 32 lanes of `f64` are multiplied side by side (four vectors with AVX-512, eight with AVX2),
//! each by every 32nd element, and then with each other in their order; blocks and segments, in theirs, by
//! `fold.rs`. Side by side it is one multiplication an element, row after row.

use crate::kernels::simd::multiversion;

const LANES: usize = 32;

multiversion! {
    /// The product.
    pub(super) fn product[I](x: &[f32]) -> f64 {
        let mut lanes = [1.0_f64; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane *= f64::from(x);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane *= f64::from(x);
        }
        lanes.iter().product()
    }
}

multiversion! {
    /// Multiplies neighbouring products by an element each.
    pub(super) fn multiply[I](products: &mut [f64], x: &[f32]) {
        for (product, &x) in products.iter_mut().zip(x) {
            *product *= f64::from(x);
        }
    }
}
