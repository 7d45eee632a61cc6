//! What the fast kernel does with a row and with a column of elements.

use crate::simd::multiversion;

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

multiversion! {
    /// Multiplies neighbouring products by an element each, unless it is 0: those are counted.
    pub(super) fn multiply_others[I](products: &mut [f64], zeros: &mut [f64], x: &[f32]) {
        for ((product, zeros), &x) in products.iter_mut().zip(zeros).zip(x) {
            *product *= if x == 0.0 { 1.0 } else { f64::from(x) };
            *zeros += f64::from(u8::from(x == 0.0));
        }
    }
}

/// The product of all but zeros, and how many of those there are.
pub(super) fn product_of_others(x: &[f32]) -> (f64, f64) {
    let (mut lanes, mut zeros) = ([1.0_f64; LANES], [0.0_f64; LANES]);
    for piece in x.chunks(LANES) {
        let len = piece.len();
        multiply_others(&mut lanes[..len], &mut zeros[..len], piece);
    }
    (lanes.iter().product(), zeros.iter().sum())
}
