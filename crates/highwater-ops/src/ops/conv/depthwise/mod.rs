//! Convolutions of which each channel knows nothing of the others: images by small kernels, without products
//! of matrices.
//!
//! An image of one channel is a task (of the kernel's gradient, a channel of all images). All elements of a
//! kernel go over 16 rows of places before the next 16: both images' parts stay in the nearest cache while
//! they are gone over as often as the kernel has elements. The innermost loop is along a row, an element of
//! the kernel in a register and neighbouring places in vectors; which of them lie over pixels is worked out
//! before it, so that nothing in it branches. What is added to an image is added by one thread, band after
//! band and in each element after element. A kernel's gradient is added in 32 lanes of `f32` (two vectors
//! with AVX-512, four with AVX2), by halves at the end of a band, and bands in `f64`, in their order and that
//! of images. It took a fifth to a tenth of the time of the loops before (BENCHMARKS.md).

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

mod cpu;

pub(super) use cpu::{MOST, Weights, conv, scratch_len, transpose, weight};

use super::patches::Side;
use crate::kernels::simd::{Isa, multiversion, sum_lanes};
use std::ops::Range;

/// Elements of a dot product that are summed side by side, and those of a vector of them.
const LANES: usize = 32;
const VECTOR: usize = 8;

/// Rows of places that all elements of a kernel go over before the next: they stay in the nearest cache.
const BAND: usize = 16;

/// The places of a row whose pixels under an element of a kernel lie inside, and the first of these pixels.
fn inside(side: &Side, element: usize) -> Option<(Range<usize>, usize)> {
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
    rows: Range<usize>,
    /// The places in each.
    places: Range<usize>,
    /// Places of a row, whichever they are.
    width: usize,
    /// Where the pixel under the first place lies, and how far it is to that of the next row.
    pixel: usize,
    down: usize,
}

impl Band {
    /// The places of each row, and where the first pixel of them lies.
    fn lines(&self) -> impl Iterator<Item = (Range<usize>, usize)> {
        let Range { start, end } = self.places;
        self.rows.clone().enumerate().map(move |(i, row)| {
            let places = row * self.width + start..row * self.width + end;
            (places, self.pixel + i * self.down)
        })
    }
}

/// All places that an element of a kernel reaches pixels from, some rows at a time: in these, one element
/// after the other.
///
/// An iterator, and no function that takes what is to be done: closures are compiled for the baseline.
fn bands([down, across]: &[Side; 2]) -> impl Iterator<Item = Band> {
    let elements = (0..down.elements).flat_map(move |above| {
        let vertical = inside(down, above);
        (0..across.elements).filter_map(move |left| {
            let element = above * across.elements + left;
            Some((element, vertical.clone()?, inside(across, left)?))
        })
    });
    let firsts = (0..down.places).step_by(BAND);
    firsts.flat_map(move |first| {
        elements
            .clone()
            .filter_map(move |(element, (rows, top), (places, x))| {
                let band = rows.start.max(first)..rows.end.min(first + BAND);
                let y = top + band.start.saturating_sub(rows.start) * down.step;
                (!band.is_empty()).then_some(Band {
                    element,
                    rows: band,
                    places,
                    width: across.places,
                    pixel: y * across.extent + x,
                    down: down.step * across.extent,
                })
            })
    })
}

multiversion! {
    /// Adds to the places of an image the pixels times the kernel.
    fn gather[I](x: &[f32], kernel: &[f32], y: &mut [f32], sides: &[Side; 2]) {
        let step = sides[1].step;
        for band in bands(sides) {
            let factor = kernel[band.element];
            for (places, start) in band.lines() {
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
            }
        }
    }
}

multiversion! {
    /// Adds to the pixels of an image the places times the kernel.
    fn scatter[I](y: &[f32], kernel: &[f32], x: &mut [f32], sides: &[Side; 2]) {
        let step = sides[1].step;
        for band in bands(sides) {
            let factor = kernel[band.element];
            for (places, start) in band.lines() {
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
            }
        }
    }
}

/// Adds the products of numbers `step` apart and those side by side to the sums of lanes.
#[inline(always)]
fn dot<I: Isa>(x: &[f32], step: usize, y: &[f32], lanes: &mut [f32; LANES]) {
    let (chunks, rest) = y.as_chunks::<LANES>();
    for (chunk, y) in chunks.iter().enumerate() {
        let x = &x[chunk * LANES * step..][..=(LANES - 1) * step];
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
    for ((&x, &y), lane) in x
        .iter()
        .step_by(step)
        .zip(tail)
        .zip(&mut lanes[LANES - VECTOR..])
    {
        *lane = I::fma(x, y, *lane);
    }
}

multiversion! {
    /// Adds to the kernel the products of pixels and places.
    fn correlate[I](x: &[f32], y: &[f32], kernel: &mut [f64], sides: &[Side; 2]) {
        let step = sides[1].step;
        for band in bands(sides) {
            let mut lanes = [0.0; LANES];
            for (places, start) in band.lines() {
                let (x, y) = (&x[start..], &y[places]);
                // Of a step that is known, loads are vectors.
                match step {
                    1 => dot::<I>(x, 1, y, &mut lanes),
                    2 => dot::<I>(x, 2, y, &mut lanes),
                    _ => dot::<I>(x, step, y, &mut lanes),
                }
            }
            kernel[band.element] += f64::from(sum_lanes(lanes));
        }
    }
}
