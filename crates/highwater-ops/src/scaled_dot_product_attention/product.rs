//! Small matrix products on memory that lies in the caches.

#![expect(unsafe_code, reason = "tiles are read and written by address")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::gemm::tile;
use crate::vector::{Simd, Task};

/// The left factor: element (row, k) is `data[row * self.row + k * self.step]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left<'a> {
    data: &'a [f32],
    row: usize,
    step: usize,
}

impl<'a> Left<'a> {
    /// Rows `row` elements apart.
    #[inline(always)]
    pub(super) fn rows(data: &'a [f32], row: usize) -> Self {
        Self { data, row, step: 1 }
    }

    /// Columns `step` elements apart: the transposed of such rows.
    #[inline(always)]
    pub(super) fn columns(data: &'a [f32], step: usize) -> Self {
        Self { data, row: 1, step }
    }
}

/// Rows, summed steps and columns (a multiple of 16) of a product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) columns: usize,
}

/// Multiplies `left` by rows `right.1` elements apart, into rows `to_row` elements apart:
/// `to = left right`, or `to += left right` if `add`.
#[inline(always)]
pub(super) fn multiply<S: Simd>(
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
    s.call(Product {
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
    });
}

/// A product whose factors and result were checked to be there. Made only in [`multiply`].
struct Product {
    left: tile::Left,
    right: tile::Right,
    to: tile::Rows<*mut f32>,
    extent: Extent,
    add: bool,
}

impl Task for Product {
    /// Computes it in panels of columns, so that a panel of `right` stays in the first cache.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
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
}

impl Product {
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
        unsafe { tile::tile::<tile::Singles, S, R, V>(s, left, right, self.extent.depth, from, to) }
    }
}

/// `to[c][r] = from[r][c] * factor` for `rows` and `columns`, both multiples of 16; rows of `from`
/// are `from.1` elements apart, those of `to` `to_row`.
#[inline(always)]
pub(super) fn transpose<S: Simd>(
    s: S,
    from: (&[f32], usize),
    to: &mut [f32],
    to_row: usize,
    (rows, columns): (usize, usize),
    factor: f32,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    let inside = rows.is_multiple_of(16)
        && columns.is_multiple_of(16)
        && (rows - 1) * from.1 + columns <= from.0.len()
        && (columns - 1) * to_row + rows <= to.len();
    assert!(inside, "both blocks must lie in their slices");
    let factor = Some(s.splat(factor));
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
