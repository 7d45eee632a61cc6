//! Small matrix products on memory that lies in the caches.

#![expect(unsafe_code, reason = "register tiles read and write through strides")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::vector::Simd;

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

/// `to = left right`, or `to += left right`.
///
/// Each element is one chain of fused multiply-adds in the order of the depth, starting from 0 or
/// from what is there.
#[derive(Debug)]
pub(super) struct Product {
    left: *const f32,
    left_row: usize,
    left_step: usize,
    right: *const f32,
    right_row: usize,
    to: *mut f32,
    to_row: usize,
    extent: Extent,
    add: bool,
}

/// Multiplies `left` by rows `right.1` elements apart, into rows `to_row` elements apart.
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
    let product = Product {
        left: left.data.as_ptr(),
        left_row: left.row,
        left_step: left.step,
        right: right.0.as_ptr(),
        right_row: right.1,
        to: to.as_mut_ptr(),
        to_row,
        extent,
        add,
    };
    // SAFETY: asserted.
    unsafe { s.product(&product) }
}

impl Product {
    /// Computes it in panels of columns, so that a panel of `right` stays in the first cache.
    ///
    /// # Safety
    /// Every element that the extent reaches through the pointers must be valid.
    #[inline(always)]
    pub(super) unsafe fn run<S: Simd>(&self, s: S) {
        let mut column = 0;
        while column < self.extent.columns {
            let vectors = (self.extent.columns - column) / S::LANES;
            // SAFETY: the panel lies in the extent.
            let done = unsafe {
                match vectors {
                    4.. if S::LANES == 16 => self.panel::<S, 4>(s, column),
                    2.. => self.panel::<S, 2>(s, column),
                    _ => self.panel::<S, 1>(s, column),
                }
            };
            column += done * S::LANES;
        }
    }

    /// All rows of `V` vectors of columns; answers `V`.
    #[inline(always)]
    unsafe fn panel<S: Simd, const V: usize>(&self, s: S, column: usize) -> usize {
        let rows = self.extent.rows;
        let mut row = 0;
        // SAFETY: each tile lies in the extent.
        unsafe {
            while row + 6 <= rows {
                self.tile::<S, 6, V>(s, row, column);
                row += 6;
            }
            if row + 4 <= rows {
                self.tile::<S, 4, V>(s, row, column);
                row += 4;
            }
            if row + 2 <= rows {
                self.tile::<S, 2, V>(s, row, column);
                row += 2;
            }
            if row < rows {
                self.tile::<S, 1, V>(s, row, column);
            }
        }
        V
    }

    /// A tile that is summed in registers.
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        row: usize,
        column: usize,
    ) {
        // SAFETY: the tile lies in the extent, whose elements the caller vouches for.
        unsafe {
            let to = self.to.add(row * self.to_row + column);
            let mut sums = [[s.splat(0.0); V]; R];
            if self.add {
                for (r, sums) in sums.iter_mut().enumerate() {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = s.load_at(to.add(r * self.to_row + v * S::LANES));
                    }
                }
            }
            let mut left = self.left.wrapping_add(row * self.left_row);
            let mut right = self.right.wrapping_add(column);
            for _ in 0..self.extent.depth {
                let b: [S::V; V] = std::array::from_fn(|v| s.load_at(right.add(v * S::LANES)));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let a = s.splat(*left.add(r * self.left_row));
                    for (sum, &b) in sums.iter_mut().zip(&b) {
                        *sum = s.fma(a, b, *sum);
                    }
                }
                left = left.wrapping_add(self.left_step);
                right = right.wrapping_add(self.right_row);
            }
            for (r, sums) in sums.iter().enumerate() {
                for (v, &sum) in sums.iter().enumerate() {
                    s.store_at(to.add(r * self.to_row + v * S::LANES), sum);
                }
            }
        }
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
    let factor = s.splat(factor);
    for row in (0..rows).step_by(S::LANES) {
        for column in (0..columns).step_by(S::LANES) {
            let source = from.0[row * from.1 + column..].as_ptr();
            let target = to[column * to_row + row..].as_mut_ptr();
            // SAFETY: asserted; whole vectors, since their length divides 16.
            unsafe { s.transpose((source, from.1), (target, to_row), factor) }
        }
    }
}
