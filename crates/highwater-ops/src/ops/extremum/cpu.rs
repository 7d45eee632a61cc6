//! What the fast kernel does with a row and with a column of elements.
//!
//! Along a row a block of 1,024 elements is gone over for its largest alone, in 32 lanes; its place is looked
//! for in a second walk, through the first cache, and only if it is better than all before. So places take no
//! lanes. Among equals the first wins, whoever has which segment, since these are joined in order. Side by
//! side, a result's largest and place are chosen by selections. Rows run at 43 to 45% of the pace of a copy,
//! columns at 34 to 36% (with AVX2, BENCHMARKS.md).

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::fold::State;
use crate::kernels::simd::multiversion;

/// Whether an element takes the place of one before it: it is larger, or the first NaN.
#[inline(always)]
pub(super) fn is_better(x: f64, than: f64) -> bool {
    (x > than) | (x.is_nan() & !than.is_nan())
}

/// The largest of elements times `sign`, and its place, where one of these is better than before.
pub(super) fn row(state: State, at: usize, x: &[f32], sign: f32) -> State {
    let largest = largest(x, sign);
    if !is_better(f64::from(largest), state[0]) {
        return state;
    }
    #[expect(clippy::float_cmp, reason = "it is one of them")]
    let is_it = |&x: &f32| {
        if largest.is_nan() {
            x.is_nan()
        } else {
            sign * x == largest
        }
    };
    let place = x.iter().position(is_it).unwrap_or(0);
    [f64::from(sign * x[place]), (at + place) as f64, 0.0]
}

multiversion! {
    /// The largest element times `sign`; NaN if there is one.
    fn largest[I](x: &[f32], sign: f32) -> f32 {
        const LANES: usize = 32;
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let larger = |lane: &mut f32, x: f32| {
            *lane = if (x > *lane) | x.is_nan() { x } else { *lane };
        };
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                larger(lane, sign * x);
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            larger(lane, sign * x);
        }
        let mut largest = f32::NEG_INFINITY;
        for lane in lanes {
            larger(&mut largest, lane);
        }
        largest
    }
}

multiversion! {
    /// Takes in the `at`-th element of neighbouring results.
    fn column_of[I](largest: &mut [f64], place: &mut [f64], at: f64, x: &[f32], sign: f64) {
        for ((largest, place), &x) in largest.iter_mut().zip(place).zip(x) {
            let x = sign * f64::from(x);
            let better = is_better(x, *largest);
            *largest = if better { x } else { *largest };
            *place = if better { at } else { *place };
        }
    }
}

pub(super) fn column(largest: &mut [f64], place: &mut [f64], at: f64, x: &[f32], sign: f64) {
    column_of(largest, place, at, x, sign);
}
