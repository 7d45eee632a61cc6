//! Bilinear scaling with antialiasing: Pillow's arithmetic. Pillow takes rows first where that costs less, from
//! some version on; bytes then differ by 1 at most, by what the first pass rounds.
//!
//! Each output pixel is a weighted mean of the input pixels within a triangle around it, which is as wide as
//! two input pixels where the picture grows, and as two output pixels where it shrinks. Columns first, then
//! rows; weights are whole numbers of 22 bits behind the point, and each pass rounds to bytes.

use super::picture::Pixels;
use crate::DataError;

/// Bits behind the point: 32, less 8 of a byte and 2 of room.
const BITS: u32 = 22;

/// The inputs of an output, and their weights.
struct Weights {
    first: usize,
    weights: Vec<i32>,
}

/// Of each of `to` outputs that `from` inputs are scaled to.
fn weights(from: usize, to: usize) -> Vec<Weights> {
    let scale = from as f64 / to as f64;
    let support = scale.max(1.0);
    let of_output = |output: usize| {
        let center = (output as f64 + 0.5) * scale;
        // Truncated, as conversions to whole numbers are.
        let first = ((center - support + 0.5) as i64).max(0) as usize;
        let end = ((center + support + 0.5) as i64).clamp(0, from as i64) as usize;
        let triangle = |input: usize| {
            let distance = ((input as f64 - center + 0.5) / support).abs();
            (1.0 - distance).max(0.0)
        };
        let shares: Vec<f64> = (first..end).map(triangle).collect();
        let sum: f64 = shares.iter().sum();
        let fixed = |share: f64| {
            let share = if sum == 0.0 { share } else { share / sum };
            (share * f64::from(1 << BITS) + 0.5) as i32
        };
        Weights {
            first,
            weights: shares.into_iter().map(fixed).collect(),
        }
    };
    (0..to).map(of_output).collect()
}

/// A weighted sum of every `stride`-th byte.
fn weighted(bytes: &[u8], stride: usize, weights: &[i32]) -> u8 {
    let inputs = bytes.iter().step_by(stride).zip(weights);
    let sum = inputs.fold(1 << (BITS - 1), |sum: i32, (&byte, &weight)| {
        sum + i32::from(byte) * weight
    });
    (sum >> BITS).clamp(0, 255) as u8
}

/// A picture in another size; the picture itself if it is of that already.
pub(super) fn resized(pixels: Pixels, height: usize, width: usize) -> Result<Pixels, DataError> {
    let (from_height, from_width) = (pixels.height(), pixels.width());
    if (from_height, from_width) == (height, width) {
        return Ok(pixels);
    }
    if [from_height, from_width, height, width].contains(&0) {
        return Err(DataError::Usage(format!(
            "a picture of {from_height} by {from_width} cannot be scaled to {height} by {width}"
        )));
    }
    let wide = if from_width == width {
        pixels
    } else {
        let columns = weights(from_width, width);
        let mut bytes = Vec::with_capacity(3 * from_height * width);
        for row in pixels.as_bytes().chunks(3 * from_width) {
            for Weights { first, weights } in &columns {
                bytes.extend((0..3).map(|c| weighted(&row[3 * first + c..], 3, weights)));
            }
        }
        Pixels::new(width, from_height, bytes)?
    };
    if from_height == height {
        return Ok(wide);
    }
    let stride = 3 * width;
    let mut bytes = Vec::with_capacity(stride * height);
    for Weights { first, weights } in weights(from_height, height) {
        let rows = &wide.as_bytes()[stride * first..];
        bytes.extend((0..stride).map(|at| weighted(&rows[at..], stride, &weights)));
    }
    Pixels::new(width, height, bytes)
}
