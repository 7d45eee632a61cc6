//! Products into types narrower than `f32`: a strip of columns at a time is summed in `f32`, and rounded by
//! the tasks that sum it, as soon as sums are whole.

#![expect(unsafe_code, reason = "tasks round blocks of one output")]

use super::grid::Grid;
use super::matrix::{At, MatMut, Plus};
use super::words::{self, PANEL, STAGED};
use crate::kernels::float::{Float, PIECE, is_f32};
use crate::kernels::simd::multiversion;
use std::ops::Range;

/// Rows that may be summed at once: for those behind them the right factor is packed anew.
const ROWS: [usize; 5] = [2048, 1344, 1008, 672, 504];

/// Rows that are summed at once in staging, and the columns of a strip: such that packing takes the least.
/// Strips pack rows anew, or read them anew where tiles read them as they lie; rows that are summed later
/// pack the right factor anew.
pub(super) fn cut([rows, cols]: [usize; 2], packs_rows: bool) -> [usize; 2] {
    let most = cols.next_multiple_of(PANEL).min(words::COLS);
    let cost = |[height, strip]: [usize; 2]| {
        let reads = cols.div_ceil(strip) * rows;
        let reads = if packs_rows { reads } else { reads / 4 };
        reads + rows.div_ceil(height) * cols
    };
    let cuts = ROWS.map(|most_rows| {
        let height = rows.div_ceil(rows.div_ceil(most_rows).max(1));
        let height = height.next_multiple_of(words::ROWS).min(rows).max(1);
        [height, (STAGED / height / PANEL * PANEL).min(most)]
    });
    let best = cuts.into_iter().min_by_key(|&cut| cost(cut));
    best.unwrap_or(cuts[0])
}

/// Elements of staging that a product into a matrix of `T` needs.
pub(crate) fn staging_len<T: Float>(rows: usize, cols: usize) -> usize {
    if is_f32::<T>() {
        0
    } else {
        rows.saturating_mul(cols).min(STAGED)
    }
}

/// Where sums are rounded to, and what is added to them before.
#[derive(Clone, Copy)]
pub(super) struct Target<T> {
    pub(super) to: At<*mut T>,
    pub(super) from: Option<At<*const T>>,
    /// Where columns lie, if not at a stride, and how many are skipped.
    pub(super) grid: Option<(Grid, usize)>,
}

// SAFETY: addresses of an output that is borrowed as long as tasks round into it, each its own elements.
unsafe impl<T: Float> Sync for Target<T> {}

impl<T: Float> Target<T> {
    /// The output from an element on.
    pub(super) fn skip(self, row: usize, col: usize) -> Self {
        let on_grid = self.grid.is_some();
        Self {
            to: self.to.skip(row, if on_grid { 0 } else { col }),
            from: self.from.map(|from| from.skip(row, col)),
            grid: self.grid.map(|(grid, skipped)| (grid, skipped + col)),
        }
    }

    /// The transposed output.
    pub(super) fn t(self) -> Self {
        Self {
            to: self.to.t(),
            from: self.from.map(At::t),
            grid: None,
        }
    }

    /// See [`Place`](super::product::Place): columns of a grid that lie side by side, if nothing is added.
    pub(super) fn place(&self, row: usize, cols: Range<usize>) -> (usize, Option<At<*mut f32>>) {
        let grid = self.grid.filter(|(grid, _)| grid.strides[2] == 1);
        let Some((grid, skipped)) = grid.filter(|_| is_f32::<T>() && self.from.is_none()) else {
            return (cols.len(), None);
        };
        let (at, left) = grid.run(skipped + cols.start);
        let len = if cols.len() <= left {
            cols.len()
        } else {
            left / PANEL * PANEL
        };
        if len == 0 {
            return (cols.len().min(PANEL), None);
        }
        let to = At {
            data: self.to.skip(row, 0).data.wrapping_add(at),
            ..self.to
        };
        (len, Some(to.cast()))
    }

    /// Rounds the sums of a block, whose first row and column are given, and how many there are.
    ///
    /// # Safety
    /// The block must lie in the output, for writes by nobody else; the sums must be there.
    pub(super) unsafe fn round(
        &self,
        [row, col]: [usize; 2],
        [rows, cols]: [usize; 2],
        sums: At<*const f32>,
    ) {
        let [mut added, mut whole] = [[0.0; PIECE]; 2];
        for c in (0..cols).step_by(PIECE) {
            let len = PIECE.min(cols - c);
            let (added, whole) = (&mut added[..len], &mut whole[..len]);
            for r in 0..rows {
                // SAFETY: a part of a row of the block, the caller's; sums lie side by side.
                unsafe {
                    let sums = std::slice::from_raw_parts(sums.skip(r, c).data, len);
                    let Some(from) = self.from else {
                        self.line(row + r, col + c, sums);
                        continue;
                    };
                    // What all rows have in common is widened once.
                    if r == 0 || from.row_stride != 0 {
                        widen(from.skip(row + r, col + c), added);
                    }
                    add(added, sums, whole);
                    self.line(row + r, col + c, whole);
                }
            }
        }
    }

    /// Rounds some sums of a row.
    ///
    /// # Safety
    /// As for [`Target::round`].
    unsafe fn line(&self, row: usize, col: usize, sums: &[f32]) {
        let Some((grid, skipped)) = self.grid else {
            let to = self.to.skip(row, col);
            // SAFETY: as wide as the sums, and the task's own.
            return unsafe { store(to.data, to.col_stride, sums) };
        };
        let to = self.to.skip(row, 0).data;
        grid.for_each_run(skipped + col, sums.len(), |part, at| {
            // SAFETY: columns of the row, which lie in the output.
            unsafe { store(to.add(at), grid.strides[2], &sums[part]) }
        });
    }
}

impl<T: Float> MatMut<'_, T> {
    /// Where a product goes, and what it is added to.
    ///
    /// # Panics
    /// If a row is not as wide as the output.
    pub(super) fn target(&mut self, plus: Plus<'_, T>) -> Target<T> {
        let to = At {
            data: self.data.as_mut_ptr(),
            row_stride: self.row_stride,
            col_stride: self.col_stride,
        };
        let from = match plus {
            Plus::Nothing => None,
            Plus::Output => Some(to.read()),
            Plus::Row(row) => {
                assert!(
                    row.len() == self.cols,
                    "a row must be as wide as the output"
                );
                Some(At {
                    data: row.as_ptr(),
                    row_stride: 0,
                    col_stride: 1,
                })
            }
        };
        Target {
            to,
            from,
            grid: None,
        }
    }
}

multiversion! {
    /// `to = a + b`.
    fn add(a: &[f32], b: &[f32], to: &mut [f32]) {
        for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
            *to = a + b;
        }
    }
}

/// Widens elements of a row.
///
/// # Safety
/// They must be valid.
unsafe fn widen<T: Float>(from: At<*const T>, to: &mut [f32]) {
    match from.col_stride {
        // SAFETY: as many elements side by side, the caller's.
        1 => T::widen(
            unsafe { std::slice::from_raw_parts(from.data, to.len()) },
            to,
        ),
        // SAFETY: one element for the row.
        0 => to.fill(unsafe { *from.data }.wide()),
        stride => {
            for (c, x) in to.iter_mut().enumerate() {
                // SAFETY: as above.
                *x = unsafe { *from.data.add(c * stride) }.wide();
            }
        }
    }
}

/// Rounds sums to elements at a stride.
///
/// # Safety
/// They must be valid, for writes by nobody else; at most [`PIECE`] of them.
unsafe fn store<T: Float>(to: *mut T, stride: usize, sums: &[f32]) {
    if stride == 1 {
        // SAFETY: the caller's.
        T::round(sums, unsafe {
            std::slice::from_raw_parts_mut(to, sums.len())
        });
        return;
    }
    let mut rounded = [T::zeroed(); PIECE];
    let rounded = &mut rounded[..sums.len()];
    T::round(sums, rounded);
    for (c, &x) in rounded.iter().enumerate() {
        // SAFETY: as above.
        unsafe { *to.add(c * stride) = x }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mat, MatMut, Plus, gemm, gemm_serial, gemm_sum};
    use super::*;
    use crate::Pool;
    use crate::kernels::float::half_ulp;
    use half::{bf16, f16};
    use highwater_graph::DType;

    fn numbers<T: Float>(len: usize, seed: u32) -> Vec<T> {
        let mut state = seed;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            T::nearest((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    /// Rows, columns, depth: more than a strip each way, in one slice of the depth and in several.
    const SHAPES: [[usize; 3]; 7] = [
        [2100, 300, 21],
        [600, 1030, 20],
        [1030, 600, 390],
        [37, 65, 800],
        [130, 40, 1601],
        [1, 33, 5],
        [5, 3, 0],
    ];

    /// The product, in every storage order: 1 for `a`, 2 for `b`, 4 for the output stored by columns.
    fn product<T: Float>(
        pool: &Pool,
        [m, n, k]: [usize; 3],
        orders: usize,
        serial: bool,
    ) -> Vec<T> {
        let strides = |bit: usize, rows: usize, cols: usize| match orders >> bit & 1 {
            0 => [cols, 1],
            _ => [1, rows],
        };
        let (a, b) = (numbers::<T>(m * k, 1), numbers::<T>(k * n, 2));
        let (sa, sb, sc) = (strides(0, m, k), strides(1, k, n), strides(2, m, n));
        let (mut c, row) = (numbers::<T>(m * n, 3), numbers::<T>(n, 4));
        let before = c.clone();
        let mut staging = vec![f32::NAN; staging_len::<T>(m, n)];
        let what = match orders % 3 {
            0 => Plus::Nothing,
            1 => Plus::Output,
            _ => Plus::Row(&row),
        };
        let (ma, mb) = (Mat::new(&a, [m, k], sa), Mat::new(&b, [k, n], sb));
        let out = MatMut::new(&mut c, [m, n], sc);
        if serial {
            gemm_serial(pool, out, ma, mb, what, &mut staging);
        } else {
            gemm(pool, out, ma, mb, what, &mut staging);
        }
        let most = half_ulp(if T::is(DType::BF16) {
            DType::BF16
        } else {
            DType::F16
        });
        for i in (0..m).step_by(41) {
            for j in (0..n).step_by(37) {
                let term = |l: usize| {
                    let a = f64::from(a[i * sa[0] + l * sa[1]].wide());
                    a * f64::from(b[l * sb[0] + j * sb[1]].wide())
                };
                let at = i * sc[0] + j * sc[1];
                let more = match orders % 3 {
                    0 => 0.0,
                    1 => f64::from(before[at].wide()),
                    _ => f64::from(row[j].wide()),
                };
                let want = (0..k).map(term).sum::<f64>() + more;
                let got = f64::from(c[at].wide());
                let wrong = (got - want).abs();
                assert!(
                    wrong <= most * want.abs() + 1e-4,
                    "{m} {n} {k} {orders}: {got} for {want}"
                );
            }
        }
        c
    }

    fn are_right<T: Float>() {
        let pools = [1, 2, 3].map(|threads| Pool::new(threads).unwrap());
        for shape in SHAPES {
            for orders in 0..8 {
                let want = product::<T>(&pools[1], shape, orders, false);
                for (pool, serial) in [(&pools[0], false), (&pools[2], false), (&pools[1], true)] {
                    let got = product::<T>(pool, shape, orders, serial);
                    let (got, want): (&[u8], &[u8]) =
                        (bytemuck::cast_slice(&got), bytemuck::cast_slice(&want));
                    assert!(got == want, "{shape:?} {orders}: other bits");
                }
            }
        }
    }

    #[test]
    fn products_are_rounded_once_part_by_part() {
        are_right::<bf16>();
        are_right::<f16>();
    }

    #[test]
    fn a_sum_of_products_is_rounded_once() {
        let pool = Pool::new(2).unwrap();
        let one = [bf16::ONE];
        // A thousand times less than half a unit in the last place of 1.
        let small = [bf16::from_f32(2.0_f32.powi(-18))];
        let mat = |data| Mat::new(data, [1, 1], [1, 1]);
        let factors = (0..=1 << 11).map(|i| (mat(&one), mat(if i == 0 { &one } else { &small })));
        let (mut c, mut staging) = ([bf16::ZERO], [0.0]);
        gemm_sum(&pool, MatMut::dense(&mut c, 1, 1), factors, &mut staging);
        assert_eq!(
            c[0].to_f32().to_bits(),
            (1.0_f32 + 2.0_f32.powi(-7)).to_bits()
        );
        gemm_sum(
            &pool,
            MatMut::dense(&mut c, 1, 1),
            std::iter::empty(),
            &mut staging,
        );
        assert_eq!(c[0].to_bits(), 0);
    }
}
