//! Maxima of a row of places: all columns of places at once, one element of their windows after the other.
//!
//! Which elements there are is worked out once for a row of places instead of once a place, and the innermost
//! loop is over neighbouring places, by vectors: at ResNet's first pool a window at a time took fifteen times
//! PyTorch's time.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::windows::{PoolSettings, Window, Windows};
use crate::kernels::simd::multiversion;

/// Columns of places that are worked on at a time.
const COLUMNS: usize = 256;

/// No element was above minus infinity.
const NONE: u32 = u32::MAX;

/// Places that are decided on at once.
const LANES: usize = 16;

/// Takes elements `stride` apart where they are larger than the best so far, or NaN.
///
/// A few at a time are copied and stored whole: of stores where elements are better, the compiler makes stores
/// under a mask, for which the loads of the next element wait.
#[inline(always)]
fn keep(x: &[f32], stride: usize, best: &mut [f32], found: &mut [u32], element: u32) {
    let (bests, last_best) = best.as_chunks_mut::<LANES>();
    let (founds, last_found) = found.as_chunks_mut::<LANES>();
    let done = LANES * bests.len();
    for (chunk, (best, found)) in bests.iter_mut().zip(founds).enumerate() {
        let (mut values, mut places) = (*best, *found);
        let x = &x[LANES * chunk * stride..][..=(LANES - 1) * stride];
        for i in 0..LANES {
            let x = x[i * stride];
            let is_better = x > values[i] || x.is_nan();
            values[i] = if is_better { x } else { values[i] };
            places[i] = if is_better { element } else { places[i] };
        }
        (*best, *found) = (values, places);
    }
    for (i, (best, found)) in last_best.iter_mut().zip(last_found).enumerate() {
        let x = x[(done + i) * stride];
        if x > *best || x.is_nan() {
            (*best, *found) = (x, element);
        }
    }
}

multiversion! {
    /// [`keep`] of elements `stride` apart, the last one included.
    fn take[I](x: &[f32], stride: usize, best: &mut [f32], found: &mut [u32], element: u32) {
        // Of a stride that is known, loads are vectors.
        match stride {
            1 => keep(x, 1, best, found, element),
            2 => keep(x, 2, best, found, element),
            _ => keep(x, stride, best, found, element),
        }
    }
}

/// Fills `best` with the largest elements of the windows at a row of places, from the column `first` on, the
/// first of equal ones and the last of NaNs, and `found` with their numbers in the windows, or [`NONE`] where
/// all are minus infinity. `x` is an image of so many rows and columns.
fn fill(
    settings: &PoolSettings,
    (x, [height, width]): (&[f32], [usize; 2]),
    (row, first): (usize, usize),
    best: &mut [f32],
    found: &mut [u32],
) {
    best.fill(f32::NEG_INFINITY);
    found.fill(NONE);
    let [kernel, stride] = [settings.kernel, settings.stride];
    for i in 0..kernel[0] {
        let y = row * stride[0] + i * settings.dilation[0];
        let Some(y) = y.checked_sub(settings.padding[0]).filter(|&y| y < height) else {
            continue;
        };
        let line = &x[y * width..][..width];
        for j in 0..kernel[1] {
            // The columns of places whose element lies in the image: of column `c` it is at
            // `c stride + ahead - padding`.
            let (ahead, padding) = (j * settings.dilation[1], settings.padding[1]);
            let low = padding.saturating_sub(ahead).div_ceil(stride[1]).max(first);
            let high = match (width + padding).checked_sub(ahead) {
                Some(room) => room.div_ceil(stride[1]).min(first + best.len()),
                None => 0,
            };
            if low < high {
                let from = low * stride[1] + ahead - padding;
                let part = low - first..high - first;
                take(
                    &line[from..=from + (high - 1 - low) * stride[1]],
                    stride[1],
                    &mut best[part.clone()],
                    &mut found[part],
                    (i * kernel[1] + j) as u32,
                );
            }
        }
    }
}

/// The maxima of a row of places, with their places in the windows; of windows of one size.
pub(super) fn largest_by_rows(
    settings: &PoolSettings,
    (x, from): (&[f32], [usize; 2]),
    row: usize,
    y: &mut [f32],
    set: impl Fn(usize, usize),
) {
    let windows = Windows::Fixed(*settings);
    let mut found = [0; COLUMNS];
    for (piece, y) in y.chunks_mut(COLUMNS).enumerate() {
        let first = piece * COLUMNS;
        let found = &mut found[..y.len()];
        fill(settings, (x, from), (row, first), y, found);
        for (col, &found) in found.iter().enumerate() {
            let place = if found == NONE {
                // The first that there is.
                let rows = windows.at(0, row, from[0]);
                let cols = windows.at(1, first + col, from[1]);
                rows.skipped * settings.kernel[1] + cols.skipped
            } else {
                found as usize
            };
            set(first + col, place);
        }
    }
}

/// The same of any windows.
pub(super) fn largest_by_windows(
    windows: &Windows,
    (x, from): (&[f32], [usize; 2]),
    row: usize,
    y: &mut [f32],
    set: impl Fn(usize, usize),
) {
    let rows = windows.at(0, row, from[0]);
    for (col, y) in y.iter_mut().enumerate() {
        let cols = windows.at(1, col, from[1]);
        let (value, place) = largest(x, [rows, cols], from[1], windows);
        *y = value;
        set(col, place);
    }
}

/// The largest element of a window, the first of equal ones, the last of NaNs; and its place.
fn largest(x: &[f32], [rows, cols]: [Window; 2], width: usize, windows: &Windows) -> (f32, usize) {
    let columns = windows.columns(cols);
    let mut found = (f32::NEG_INFINITY, rows.skipped * columns + cols.skipped);
    for (i, y) in rows.pixels().enumerate() {
        let row = &x[y * width..][..width];
        let first = (rows.skipped + i) * columns + cols.skipped;
        for (j, &value) in row[cols.start..cols.end]
            .iter()
            .step_by(cols.step)
            .enumerate()
        {
            if value > found.0 || value.is_nan() {
                found = (value, first + j);
            }
        }
    }
    found
}
