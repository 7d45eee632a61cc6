//! Pictures in memory.

use crate::{Array, DataError};
use highwater_graph::DType;

/// Red, green and blue of each pixel in a byte each, row after row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    width: usize,
    height: usize,
    bytes: Vec<u8>,
}

impl Pixels {
    /// A picture of these bytes: three for each pixel.
    ///
    /// # Errors
    /// [`DataError::Usage`] for another number of them.
    pub fn new(width: usize, height: usize, bytes: Vec<u8>) -> Result<Self, DataError> {
        let expected = width
            .checked_mul(height)
            .and_then(|pixels| pixels.checked_mul(3));
        if expected != Some(bytes.len()) {
            let message = format!("{} bytes are no {width} by {height} pixels", bytes.len());
            return Err(DataError::Usage(message));
        }
        Ok(Self {
            width,
            height,
            bytes,
        })
    }

    /// Pixels of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Three bytes for each pixel.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A part of it; what lies outside is black.
    pub(super) fn part(&self, left: isize, top: isize, width: usize, height: usize) -> Self {
        let mut bytes = vec![0; 3 * width * height];
        let from = left.max(0);
        let to = (left + width as isize).min(self.width as isize);
        if from < to {
            for row in 0..height {
                let Some(y) = top
                    .checked_add_unsigned(row)
                    .and_then(|y| usize::try_from(y).ok())
                else {
                    continue;
                };
                if y >= self.height {
                    break;
                }
                let held = 3 * (y * self.width + from as usize);
                let own = 3 * (row * width + (from - left) as usize);
                let count = 3 * (to - from) as usize;
                bytes[own..own + count].copy_from_slice(&self.bytes[held..held + count]);
            }
        }
        Self {
            width,
            height,
            bytes,
        }
    }

    /// Left and right exchanged.
    pub(super) fn mirrored(mut self) -> Self {
        for row in self.bytes.chunks_mut(3 * self.width.max(1)) {
            let (pixels, _) = row.as_chunks_mut::<3>();
            pixels.reverse();
        }
        self
    }
}

/// A picture on its way through transforms: bytes, until [`ToTensor`](super::ToTensor) makes numbers of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Picture {
    /// Bytes.
    Pixels(Pixels),
    /// `F32`s of `[channels, height, width]`.
    Tensor(Array),
}

impl Picture {
    /// The bytes.
    ///
    /// # Errors
    /// [`DataError::Usage`], naming who wants them, if there are numbers already.
    pub fn into_pixels(self, who: &str) -> Result<Pixels, DataError> {
        match self {
            Self::Pixels(pixels) => Ok(pixels),
            Self::Tensor(_) => Err(DataError::Usage(format!("{who} comes before ToTensor"))),
        }
    }

    /// The numbers: of bytes, [`ToTensor`](super::ToTensor)'s.
    pub fn into_tensor(self) -> Array {
        match self {
            Self::Pixels(pixels) => to_tensor(&pixels),
            Self::Tensor(array) => array,
        }
    }
}

/// `F32`s from 0 to 1, a plane for each colour.
fn to_tensor(pixels: &Pixels) -> Array {
    let (height, width) = (pixels.height, pixels.width);
    let mut numbers = Vec::with_capacity(4 * pixels.bytes.len());
    for channel in 0..3 {
        let plane = pixels.bytes.iter().skip(channel).step_by(3);
        numbers.extend(plane.flat_map(|&byte| (f32::from(byte) / 255.0).to_le_bytes()));
    }
    let array = Array::from_bytes(DType::F32, [3, height, width], numbers);
    array.expect("four bytes for each of the picture's")
}
