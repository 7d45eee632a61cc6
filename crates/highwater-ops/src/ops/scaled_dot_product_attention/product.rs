//! Small matrix products on memory that lies in the caches. Factors are of words, of one number or of two.

#![expect(unsafe_code, reason = "tiles are read and written by address")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::gemm::tile::{self, Words};
use crate::kernels::vector::{Simd, Task};
use std::marker::PhantomData;

/// The left factor: word (row, k) is `data[row * self.row + k * self.step]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left<'a> {
    data: &'a [f32],
    row: usize,
    step: usize,
}

impl<'a> Left<'a> {
    /// Rows `row` words apart.
    #[inline(always)]
    pub(super) fn rows(data: &'a [f32], row: usize) -> Self {
        Self { data, row, step: 1 }
    }

    /// Columns `step` words apart: the transposed of such rows.
    #[inline(always)]
    pub(super) fn columns(data: &'a [f32], step: usize) -> Self {
        Self { data, row: 1, step }
    }
}

/// Rows, words that are summed and columns (a multiple of 16) of a product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) columns: usize,
    pub(super) part: Part,
}

/// What of a product is wanted. A block of queries and the keys of the same positions see each other in half
/// of all pairs: a quarter of the work is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// Of each row the columns from its own number on.
    ColumnsFrom,
    /// Each row's sums from its own number on: what is left out is 0.
    DepthFrom,
    /// Each row's sums up to its own number: what is left out is 0.
    DepthUpTo,
}

impl Part {
    /// Itself for a block on the diagonal.
    #[inline(always)]
    pub(super) fn on(self, diagonal: bool) -> Self {
        if diagonal { self } else { Self::All }
    }
}

/// Rows that a [`Part`] is cut into: whole words and vectors.
pub(super) const STRIP: usize = 32;

/// Multiplies `left` by steps `right.1` words apart, into rows `to_row` elements apart:
/// `to = left right`, or `to += left right` if `add`.
#[inline(always)]
pub(super) fn multiply<W: Words, S: Simd>(
    s: S,
    left: Left<'_>,
    right: (&[f32], usize),
    to: &mut [f32],
    to_row: usize,
    extent: Extent,
    add: bool,
) {
    let Extent {
        rows,
        depth,
        columns,
        ..
    } = extent;
    if rows == 0 || columns == 0 {
        return;
    }
    let inside = columns.is_multiple_of(16)
        && (rows - 1) * to_row + columns <= to.len()
        && (depth == 0
            || (rows - 1) * left.row + (depth - 1) * left.step < left.data.len()
                && (depth - 1) * right.1 + columns <= right.0.len());
    assert!(inside, "factors and result must lie in their slices");
    s.call(Product::<W> {
        left: tile::Left::words(left.data, left.row, left.step),
        right: tile::Right {
            data: right.0.as_ptr(),
            step: right.1,
        },
        to: tile::Rows {
            data: to.as_mut_ptr(),
            row: to_row,
        },
        extent,
        add,
        words: PhantomData,
    });
}

/// A product whose factors and result were checked to be there. Made only in [`multiply`].
struct Product<W> {
    left: tile::Left,
    right: tile::Right,
    to: tile::Rows<*mut f32>,
    extent: Extent,
    add: bool,
    words: PhantomData<W>,
}

impl<W: Words> Task for Product<W> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.extent.part == Part::All {
            return self.all(s);
        }
        for start in (0..self.extent.rows).step_by(STRIP) {
            self.strip(start).all(s);
        }
    }
}

impl<W: Words> Product<W> {
    /// What is wanted of some rows.
    #[inline(always)]
    fn strip(&self, start: usize) -> Self {
        let mut strip = Self { ..*self };
        let Self {
            left,
            right,
            to,
            extent,
            ..
        } = &mut strip;
        extent.rows = STRIP.min(extent.rows - start);
        left.data = left.data.wrapping_byte_add(start * left.row);
        to.data = to.data.wrapping_add(start * to.row);
        match extent.part {
            Part::All => {}
            Part::ColumnsFrom => {
                let skipped = start.min(extent.columns);
                extent.columns -= skipped;
                right.data = right.data.wrapping_add(skipped);
                to.data = to.data.wrapping_add(skipped);
            }
            Part::DepthFrom => {
                let skipped = (start / W::ELEMENTS).min(extent.depth);
                extent.depth -= skipped;
                left.data = left.data.wrapping_byte_add(skipped * left.step);
                right.data = right.data.wrapping_add(skipped * right.step);
            }
            Part::DepthUpTo => {
                let depth = (start + extent.rows).div_ceil(W::ELEMENTS);
                extent.depth = extent.depth.min(depth);
            }
        }
        strip
    }

    /// Computes it in panels of columns, so that a panel of `right` stays in the first cache.
    #[inline(always)]
    fn all<S: Simd>(&self, s: S) {
        let mut column = 0;
        while column < self.extent.columns {
            let vectors = (self.extent.columns - column) / S::LANES;
            let done = match vectors {
                4.. if S::LANES == 16 => self.panel::<S, 4>(s, column),
                2.. => self.panel::<S, 2>(s, column),
                _ => self.panel::<S, 1>(s, column),
            };
            column += done * S::LANES;
        }
    }

    /// All rows of `V` vectors of columns; answers `V`.
    #[inline(always)]
    fn panel<S: Simd, const V: usize>(&self, s: S, column: usize) -> usize {
        const MOST: usize = 6;
        for (row, size) in tile::groups::<MOST>(self.extent.rows) {
            tile::with_rows!(size, self.tile::<S, MOST, V>(s, row, column));
        }
        V
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(&self, s: S, row: usize, column: usize) {
        let mut left = self.left;
        left.data = left.data.wrapping_byte_add(row * left.row);
        let mut right = self.right;
        right.data = right.data.wrapping_add(column);
        let mut to = self.to;
        to.data = to.data.wrapping_add(row * to.row + column);
        let from = self.add.then(|| tile::Rows {
            data: to.data.cast_const(),
            row: to.row,
        });
        // SAFETY: a tile of the extent, which `multiply` checked.
        unsafe { tile::tile::<W, S, R, V>(s, left, right, self.extent.depth, from, to) }
    }
}

/// `to[c][r] = from[r][c]`, times a factor if there is one, for `rows` and `columns`, both multiples of
/// 16; rows of `from` are `from.1` elements apart, those of `to` `to_row`.
#[inline(always)]
pub(super) fn transpose<S: Simd>(
    s: S,
    from: (&[f32], usize),
    to: &mut [f32],
    to_row: usize,
    (rows, columns): (usize, usize),
    factor: Option<f32>,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    let inside = rows.is_multiple_of(16)
        && columns.is_multiple_of(16)
        && (rows - 1) * from.1 + columns <= from.0.len()
        && (columns - 1) * to_row + rows <= to.len();
    assert!(inside, "both blocks must lie in their slices");
    let factor = factor.map(|factor| s.splat(factor));
    for row in (0..rows).step_by(S::LANES) {
        for column in (0..columns).step_by(S::LANES) {
            let source = from.0[row * from.1 + column..].as_ptr();
            let target = to[column * to_row + row..].as_mut_ptr();
            // SAFETY: asserted; whole vectors, since their length divides 16.
            unsafe {
                s.transpose(
                    (source, size_of::<f32>() * from.1),
                    (target, to_row),
                    factor,
                );
            }
        }
    }
}

/// The sum of the products of two rows, a multiple of 16 long: sixteen sums in parallel, then
/// those in order.
#[inline(always)]
pub(super) fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    for (a, b) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        for lane in (0..16).step_by(S::LANES) {
            let (a, b, sums) = (&a[lane..], &b[lane..], &mut sums[lane..]);
            s.store(sums, s.fma(s.load(a), s.load(b), s.load(sums)));
        }
    }
    sums.iter().sum()
}
