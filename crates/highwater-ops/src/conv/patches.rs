//! Images as factors of products: a row for each channel and element of a kernel, a column for each
//! place of the kernel, made of pixels where a product packs them.

use crate::View;
use crate::float::Float;
use crate::{Element, KernelError};
use std::ops::Range;

/// The places of a kernel in one direction, and the pixels under it: element `k` at place `i` lies over
/// pixel `step i + first + k tap`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    /// Pixels of an image.
    pub(super) extent: usize,
    /// Places of the kernel.
    pub(super) places: usize,
    /// Elements of the kernel.
    pub(super) elements: usize,
    pub(super) step: usize,
    pub(super) first: isize,
    pub(super) tap: isize,
}

impl Side {
    /// One element, over every pixel.
    pub(super) fn pixels(extent: usize) -> Self {
        Self {
            extent,
            places: extent,
            elements: 1,
            step: 1,
            first: 0,
            tap: 0,
        }
    }

    /// Whether places are pixels.
    fn is_pixels(&self) -> bool {
        (self.elements, self.step, self.first) == (1, 1, 0) && self.places == self.extent
    }

    /// The pixel under an element at the first place.
    pub(super) fn start(&self, element: usize) -> isize {
        self.first + element as isize * self.tap
    }
}

/// Patches of some channels of images.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patches<'a, T> {
    /// From the first channel's first pixel on.
    data: &'a [T],
    /// Of images, channels, rows and columns.
    strides: [usize; 4],
    channels: usize,
    images: usize,
    sides: [Side; 2],
}

impl<'a, T: Float> Patches<'a, T> {
    /// Some channels of a tensor of images, under a kernel.
    pub(super) fn new(
        view: &'a View<'_>,
        channels: Range<usize>,
        sides: [Side; 2],
    ) -> Result<Self, KernelError> {
        let layout = view.layout();
        let &[n, c, h, w] = layout.strides() else {
            return Err(KernelError::Unsupported {
                expected: "images [N, C, H, W]",
                got: format!("{layout:?}"),
            });
        };
        let storage = view.storage::<T>()?;
        let start = layout.offset() + channels.start * c;
        let mut patches = Self {
            data: &storage[start.min(storage.len())..],
            strides: [n, c, h, w],
            channels: channels.len(),
            images: view.dims()[0],
            sides,
        };
        let [rows, columns] = sides;
        if rows.is_pixels() && columns.is_pixels() && h == columns.extent * w {
            // One long row.
            patches.sides = [Side::pixels(1), Side::pixels(rows.extent * columns.extent)];
        }
        Ok(patches)
    }

    /// Rows and columns of the factor.
    pub(super) fn extents(&self) -> [usize; 2] {
        let [rows, columns] = self.sides;
        [
            self.channels * rows.elements * columns.elements,
            self.images * rows.places * columns.places,
        ]
    }

    /// Writes some rows and columns, row by row.
    pub(super) fn decode(&self, rows: Range<usize>, columns: Range<usize>, to: &mut [u8]) {
        let to: &mut [T] = bytemuck::cast_slice_mut(to);
        let [down, across] = self.sides;
        let width = across.places.max(1);
        let line = columns.start / width;
        let at = [
            line / down.places.max(1),
            line % down.places.max(1),
            columns.start % width,
        ];
        for (row, to) in rows.zip(to.chunks_exact_mut(columns.len().max(1))) {
            let (element, rest) = (row % across.elements, row / across.elements);
            let (channel, above) = (rest / down.elements, rest % down.elements);
            let (top, left) = (down.start(above), across.start(element));
            let [mut image, mut y, mut x] = at;
            let mut to = to;
            while !to.is_empty() {
                let (run, later) = to.split_at_mut(to.len().min(width - x));
                let source = top + (y * down.step) as isize;
                if (0..down.extent as isize).contains(&source) {
                    let [n, c, h, _] = self.strides;
                    let start = image * n + channel * c + source as usize * h;
                    self.line(start, left + (x * across.step) as isize, run);
                } else {
                    run.fill(T::zeroed());
                }
                (to, x, y) = (later, 0, y + 1);
                if y == down.places {
                    (image, y) = (image + 1, 0);
                }
            }
        }
    }

    /// Some places along a row of an image, which starts at `start`; the first of them over pixel `from`.
    fn line(&self, start: usize, from: isize, to: &mut [T]) {
        let Side { step, extent, .. } = self.sides[1];
        // The places that lie over pixels.
        let inside = from.unsigned_abs().div_ceil(step) * usize::from(from < 0);
        let beyond = (extent as isize - from).max(0) as usize;
        let beyond = beyond.div_ceil(step).min(to.len());
        let inside = inside.min(beyond);
        to[..inside].fill(T::zeroed());
        to[beyond..].fill(T::zeroed());
        if inside == beyond {
            return;
        }
        let to = &mut to[inside..beyond];
        let first = (from + (inside * step) as isize) as usize;
        let stride = self.strides[3];
        copy(&self.data[start + first * stride..], step * stride, to);
    }
}

/// Copies elements that lie `stride` apart.
fn copy<T: Element>(from: &[T], stride: usize, to: &mut [T]) {
    match stride {
        0 => to.fill(from[0]),
        1 => to.copy_from_slice(&from[..to.len()]),
        2 => {
            let last = to.len() - 1;
            for (to, pair) in to.iter_mut().zip(from.as_chunks::<2>().0) {
                *to = pair[0];
            }
            to[last] = from[2 * last];
        }
        _ => {
            let from = from.iter().step_by(stride);
            to.iter_mut().zip(from).for_each(|(to, &x)| *to = x);
        }
    }
}
