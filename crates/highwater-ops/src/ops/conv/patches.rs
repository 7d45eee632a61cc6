//! Images as factors of products: a row for each channel and element of a kernel, a column for each
//! place of the kernel, made of pixels where a product packs them.
//!
//! What is packed at a time is 256 columns, of as many rows as a slice of the depth has. Columns that lie
//! side by side in a row of an image are a run; where runs lie, and where they go, is worked out once for all
//! rows of the factor, and what a row then costs is where its element lies, and copies: of a width that is
//! known, from pixels next to each other, or by the stride. Pixels are widened as they are copied, with zeros
//! for what lies outside.

use crate::View;
use crate::kernels::float::{Float, as_f32};
use crate::kernels::gemm::{Decode, Mat, PACK, PANEL};
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

    /// The channels and pixels of an image as a matrix, if places are pixels and in one row.
    pub(super) fn image(&self, image: usize) -> Option<Mat<'a, T>> {
        let ([rows, columns], [n, c, _, w]) = (self.sides, self.strides);
        let is_plain = rows.is_pixels() && rows.extent == 1 && columns.is_pixels();
        is_plain.then(|| {
            let extents = [self.channels, columns.extent];
            Mat::new(&self.data[image * n..], extents, [c, w])
        })
    }

    /// Hands `f` some columns, as long as they lie in one row of places: the first of them and how many, the
    /// image and the places.
    fn for_each_run(&self, columns: Range<usize>, mut f: impl FnMut(Range<usize>, [usize; 3])) {
        let [down, across] = self.sides;
        let width = across.places.max(1);
        let mut start = columns.start;
        let (mut line, mut x) = (start / width, start % width);
        while start < columns.end {
            let end = columns.end.min(start + width - x);
            let (image, y) = (line / down.places.max(1), line % down.places.max(1));
            f(start - columns.start..end - columns.start, [image, y, x]);
            (start, line, x) = (end, line + 1, 0);
        }
    }

    /// The channel of a row, and the pixels under its element at the first place, from the first on.
    fn row(&self, row: usize) -> (usize, [isize; 2]) {
        let [down, across] = self.sides;
        let (element, rest) = (row % across.elements, row / across.elements);
        let (channel, above) = (rest / down.elements, rest % down.elements);
        (channel, [down.start(above), across.start(element)])
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

impl<T: Float> Decode for Patches<'_, T> {
    fn decode(&self, rows: Range<usize>, columns: Range<usize>, to: &mut [u8]) {
        let to: &mut [T] = bytemuck::cast_slice_mut(to);
        let ([down, across], [n, c, h, _]) = (self.sides, self.strides);
        for (row, to) in rows.zip(to.chunks_exact_mut(columns.len().max(1))) {
            let (channel, [top, left]) = self.row(row);
            self.for_each_run(columns.clone(), |run, [image, y, x]| {
                let (to, source) = (&mut to[run], top + (y * down.step) as isize);
                if (0..down.extent as isize).contains(&source) {
                    let start = image * n + channel * c + source as usize * h;
                    self.line(start, left + (x * across.step) as isize, to);
                } else {
                    to.fill(T::zeroed());
                }
            });
        }
    }

    fn panels(&self, rows: Range<usize>, columns: Range<usize>, to: &mut [f32]) -> bool {
        // Panels side by side, so that as many elements of a row are read at once; where their runs lie is
        // worked out once for all rows.
        let (depth, mut runs) = (rows.len(), [Run::default(); PACK]);
        for (part, to) in to.chunks_mut(PACK * depth.max(1)).enumerate() {
            let first = columns.start + part * PACK;
            let count = self.runs(first..columns.end.min(first + PACK), depth, &mut runs);
            for (k, row) in rows.clone().enumerate() {
                let row = self.row(row);
                for run in &runs[..count] {
                    self.copy_run(run, row, &mut to[run.to + k * PANEL..][..run.len]);
                }
            }
        }
        true
    }
}

/// Columns of a panel that lie side by side in a row of an image.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// Where they go in the first row of panels.
    to: usize,
    len: usize,
    /// Where their image begins.
    image: usize,
    /// The pixel under the first of them of an element at 0; none if these columns are to be zeros.
    pixel: Option<[isize; 2]>,
}

impl<T: Float> Patches<'_, T> {
    /// The runs of at most [`PACK`] columns, in panels of so many rows. Answers how many there are.
    fn runs(&self, columns: Range<usize>, depth: usize, runs: &mut [Run; PACK]) -> usize {
        let ([down, across], len) = (self.sides, columns.len());
        let mut count = 0;
        let mut add = |column: usize, len, image, pixel| {
            runs[count] = Run {
                to: column / PANEL * PANEL * depth + column % PANEL,
                len,
                image,
                pixel,
            };
            count += 1;
        };
        self.for_each_run(columns, |mut run, [image, y, mut x]| {
            while !run.is_empty() {
                let part = run.len().min(PANEL - run.start % PANEL);
                let pixel = [y * down.step, x * across.step].map(|at| at as isize);
                add(run.start, part, image * self.strides[0], Some(pixel));
                (run.start, x) = (run.start + part, x + part);
            }
        });
        if len % PANEL > 0 {
            add(len, PANEL - len % PANEL, 0, None);
        }
        count
    }

    /// The elements of a run in one row of the factor.
    fn copy_run(&self, run: &Run, (channel, first): (usize, [isize; 2]), to: &mut [f32]) {
        let ([down, across], [_, c, h, w]) = (self.sides, self.strides);
        let Some([y, x]) = run.pixel else {
            return to.fill(0.0);
        };
        let [y, x] = [y + first[0], x + first[1]];
        if !(0..down.extent as isize).contains(&y) {
            return to.fill(0.0);
        }
        let start = run.image + channel * c + y as usize * h;
        if across.step * w != 1 {
            let mut buffer = [T::zeroed(); PANEL];
            self.line(start, x, &mut buffer[..to.len()]);
            return T::widen(&buffer[..to.len()], to);
        }
        // Zeros where places lie before or behind the pixels of the row.
        let before = (-x).clamp(0, to.len() as isize) as usize;
        let within =
            (across.extent as isize - x).clamp(before as isize, to.len() as isize) as usize;
        to[..before].fill(0.0);
        to[within..].fill(0.0);
        let to = &mut to[before..within];
        if !to.is_empty() {
            let first = start + (x + before as isize) as usize;
            let from = &self.data[first..first + to.len()];
            match as_f32(from) {
                Some(from) => copy_short(from, to),
                None => T::widen(from, to),
            }
        }
    }
}

/// Copies at most [`PANEL`] elements: two copies of lengths that are known, which may overlap, are faster than
/// a call.
fn copy_short(from: &[f32], to: &mut [f32]) {
    if !(copy_ends::<{ PANEL / 2 }>(from, to) || copy_ends::<8>(from, to)) {
        to.iter_mut().zip(from).for_each(|(to, &x)| *to = x);
    }
}

/// Copies the first and the last `N`, which are all if there are no more than twice as many. Answers whether
/// there are as many.
fn copy_ends<const N: usize>(from: &[f32], to: &mut [f32]) -> bool {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else {
        return false;
    };
    if let Some(to) = to.first_chunk_mut::<N>() {
        *to = *first;
    }
    if let Some(to) = to.last_chunk_mut::<N>() {
        *to = *last;
    }
    true
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
