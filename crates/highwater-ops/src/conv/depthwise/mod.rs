//! Convolutions of which each channel knows nothing of the others: images by small kernels, without products
//! of matrices.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

mod cpu;

pub(super) use cpu::{MOST, Weights, conv, scratch_len, transpose, weight};

use super::patches::Side;
use crate::simd::{Isa, multiversion, sum_lanes};

/// Elements of a dot product that are summed side by side, and those of a vector of them.
const LANES: usize = 32;
const VECTOR: usize = 8;

/// Rows of places that all elements of a kernel go over before the next: they stay in the nearest cache.
const BAND: usize = 16;

/// The places of a row whose pixels under an element of a kernel lie inside, and the first of these pixels.
fn inside(side: &Side, element: usize) -> Option<(std::ops::Range<usize>, usize)> {
    let start = side.start(element);
    let first = start.unsigned_abs().div_ceil(side.step) * usize::from(start < 0);
    let beyond = (side.extent as isize - start).max(0) as usize;
    let beyond = beyond.div_ceil(side.step).min(side.places);
    let pixel = start + (first * side.step) as isize;
    (first < beyond).then_some((first..beyond, pixel as usize))
}

/// Rows of places over which an element of a kernel reaches pixels.
struct Band {
    /// The element.
    element: usize,
    rows: std::ops::Range<usize>,
    /// The places in each.
    places: std::ops::Range<usize>,
    /// Where the pixel under the first place lies, and how far it is to that of the next row.
    pixel: usize,
    down: usize,
}

impl Band {
    /// Each row of places, and where its first pixel lies.
    #[inline(always)]
    fn for_each_row(&self, width: usize, mut f: impl FnMut(std::ops::Range<usize>, usize)) {
        for (i, row) in self.rows.clone().enumerate() {
            let (start, end) = (self.places.start, self.places.end);
            f(
                row * width + start..row * width + end,
                self.pixel + i * self.down,
            );
        }
    }
}

/// Hands `f` all places that an element of a kernel reaches pixels from, some rows at a time: in these, one
/// element after the other.
#[inline(always)]
fn for_each_band(sides: &[Side; 2], mut f: impl FnMut(&Band)) {
    let [down, across] = sides;
    for first in (0..down.places).step_by(BAND) {
        for above in 0..down.elements {
            let Some((rows, top)) = inside(down, above) else {
                continue;
            };
            let band = rows.start.max(first)..rows.end.min(first + BAND);
            if band.is_empty() {
                continue;
            }
            let y = top + (band.start - rows.start) * down.step;
            for left in 0..across.elements {
                if let Some((places, x)) = inside(across, left) {
                    f(&Band {
                        element: above * across.elements + left,
                        rows: band.clone(),
                        places,
                        pixel: y * across.extent + x,
                        down: down.step * across.extent,
                    });
                }
            }
        }
    }
}

multiversion! {
    /// Adds to the places of an image the pixels times the kernel.
    fn gather[I](x: &[f32], kernel: &[f32], y: &mut [f32], sides: &[Side; 2]) {
        let (width, step) = (sides[1].places, sides[1].step);
        for_each_band(sides, |band| {
            let factor = kernel[band.element];
            band.for_each_row(width, |places, start| {
                let (x, y) = (&x[start..], &mut y[places]);
                match step {
                    1 => {
                        for (y, &x) in y.iter_mut().zip(x) {
                            *y = I::fma(factor, x, *y);
                        }
                    }
                    2 => {
                        let (pairs, last) = x.as_chunks::<2>();
                        let (paired, rest) = y.split_at_mut(y.len().min(pairs.len()));
                        for (y, pair) in paired.iter_mut().zip(pairs) {
                            *y = I::fma(factor, pair[0], *y);
                        }
                        for (y, &x) in rest.iter_mut().zip(last) {
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
        });
    }
}

multiversion! {
    /// Adds to the pixels of an image the places times the kernel.
    fn scatter[I](y: &[f32], kernel: &[f32], x: &mut [f32], sides: &[Side; 2]) {
        let (width, step) = (sides[1].places, sides[1].step);
        for_each_band(sides, |band| {
            let factor = kernel[band.element];
            band.for_each_row(width, |places, start| {
                let (x, y) = (&mut x[start..], &y[places]);
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
        });
    }
}

/// Adds the products of numbers `step` apart and those side by side to the sums of lanes.
#[inline(always)]
fn dot<I: Isa>(x: &[f32], step: usize, y: &[f32], lanes: &mut [f32; LANES]) {
    let (chunks, rest) = y.as_chunks::<LANES>();
    for (chunk, y) in chunks.iter().enumerate() {
        let x = &x[chunk * LANES * step..][..(LANES - 1) * step + 1];
        for i in 0..LANES {
            lanes[i] = I::fma(x[i * step], y[i], lanes[i]);
        }
    }
    let (vectors, tail) = rest.as_chunks::<VECTOR>();
    let mut x = x.get(chunks.len() * LANES * step..).unwrap_or_default();
    for (y, lanes) in vectors.iter().zip(lanes.as_chunks_mut::<VECTOR>().0) {
        for i in 0..VECTOR {
            lanes[i] = I::fma(x[i * step], y[i], lanes[i]);
        }
        x = x.get(VECTOR * step..).unwrap_or_default();
    }
    for ((&x, &y), lane) in x.iter().step_by(step).zip(tail).zip(&mut lanes[LANES - VECTOR..]) {
        *lane = I::fma(x, y, *lane);
    }
}

multiversion! {
    /// Adds to the kernel the products of pixels and places.
    fn correlate[I](x: &[f32], y: &[f32], kernel: &mut [f64], sides: &[Side; 2]) {
        let (width, step) = (sides[1].places, sides[1].step);
        for_each_band(sides, |band| {
            let mut lanes = [0.0; LANES];
            band.for_each_row(width, |places, start| {
                let (x, y) = (&x[start..], &y[places]);
                // Of a step that is known, loads are vectors.
                match step {
                    1 => dot::<I>(x, 1, y, &mut lanes),
                    2 => dot::<I>(x, 2, y, &mut lanes),
                    _ => dot::<I>(x, step, y, &mut lanes),
                }
            });
            kernel[band.element] += f64::from(sum_lanes(lanes));
        });
    }
}
