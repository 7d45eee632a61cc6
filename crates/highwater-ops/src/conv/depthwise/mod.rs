//! Convolutions of which each channel knows nothing of the others: images by small kernels, without products
//! of matrices.

mod cpu;

pub(super) use cpu::{MOST, Weights, conv, scratch_len, transpose, weight};

use super::patches::Side;
use crate::simd::{multiversion, sum_lanes};

/// Elements of a dot product that are summed side by side.
const LANES: usize = 32;

/// The places of a row whose pixels under an element of a kernel lie inside, and the first of these pixels.
fn inside(side: &Side, element: usize) -> Option<(std::ops::Range<usize>, usize)> {
    let start = side.start(element);
    let first = start.unsigned_abs().div_ceil(side.step) * usize::from(start < 0);
    let beyond = (side.extent as isize - start).max(0) as usize;
    let beyond = beyond.div_ceil(side.step).min(side.places);
    let pixel = start + (first * side.step) as isize;
    (first < beyond).then_some((first..beyond, pixel as usize))
}

/// Hands `f`, for each element of a kernel and row of places that it reaches pixels from: the element, the row
/// of places, the places in it, and the position of the first pixel.
#[expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]
#[inline(always)]
fn for_each_row(sides: &[Side; 2], mut f: impl FnMut(usize, usize, std::ops::Range<usize>, usize)) {
    let [down, across] = sides;
    for above in 0..down.elements {
        let Some((rows, top)) = inside(down, above) else {
            continue;
        };
        for left in 0..across.elements {
            let Some((places, pixel)) = inside(across, left) else {
                continue;
            };
            for row in rows.clone() {
                let y = top + (row - rows.start) * down.step;
                f(
                    above * across.elements + left,
                    row,
                    places.clone(),
                    y * across.extent + pixel,
                );
            }
        }
    }
}

multiversion! {
    /// Adds to the places of an image the pixels times the kernel.
    fn gather[I](x: &[f32], kernel: &[f32], y: &mut [f32], sides: &[Side; 2]) {
        let (width, step) = (sides[1].places, sides[1].step);
        for_each_row(sides, |element, row, places, start| {
            let factor = kernel[element];
            let y = &mut y[row * width..][places];
            let x = &x[start..];
            match step {
                1 => {
                    for (y, &x) in y.iter_mut().zip(x) {
                        *y = I::fma(factor, x, *y);
                    }
                }
                _ => {
                    for (y, &x) in y.iter_mut().zip(x.iter().step_by(step)) {
                        *y = I::fma(factor, x, *y);
                    }
                }
            }
        });
    }
}

multiversion! {
    /// Adds to the pixels of an image the places times the kernel.
    fn scatter[I](y: &[f32], kernel: &[f32], x: &mut [f32], sides: &[Side; 2]) {
        let (width, step) = (sides[1].places, sides[1].step);
        for_each_row(sides, |element, row, places, start| {
            let factor = kernel[element];
            let y = &y[row * width..][places];
            let x = &mut x[start..];
            match step {
                1 => {
                    for (x, &y) in x.iter_mut().zip(y) {
                        *x = I::fma(factor, y, *x);
                    }
                }
                _ => {
                    for (x, &y) in x.iter_mut().step_by(step).zip(y) {
                        *x = I::fma(factor, y, *x);
                    }
                }
            }
        });
    }
}

multiversion! {
    /// Adds to the kernel the products of pixels and places.
    fn correlate[I](x: &[f32], y: &[f32], kernel: &mut [f64], sides: &[Side; 2]) {
        let (width, step) = (sides[1].places, sides[1].step);
        for_each_row(sides, |element, row, places, start| {
            let y = &y[row * width..][places];
            let x = &x[start..];
            let mut lanes = [0.0; LANES];
            match step {
                1 => {
                    let (x, y) = (x[..y.len()].as_chunks::<LANES>(), y.as_chunks::<LANES>());
                    for (x, y) in x.0.iter().zip(y.0) {
                        for i in 0..LANES {
                            lanes[i] = I::fma(x[i], y[i], lanes[i]);
                        }
                    }
                    for ((lane, &x), &y) in lanes.iter_mut().zip(x.1).zip(y.1) {
                        *lane = I::fma(x, y, *lane);
                    }
                }
                _ => {
                    for (i, (&x, &y)) in x.iter().step_by(step).zip(y).enumerate() {
                        let lane = &mut lanes[i % LANES];
                        *lane = I::fma(x, y, *lane);
                    }
                }
            }
            kernel[element] += f64::from(sum_lanes(lanes));
        });
    }
}
