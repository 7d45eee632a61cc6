//! Operands copied into the order in which the innermost loop reads them.

#![expect(unsafe_code, reason = "blocks are transposed by vectors")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::left;
use super::matrix::Mat;
use super::tile::Singles;
use super::words::{PANEL, Pack};
use crate::kernels::float::{Float, as_f32, is_f32};
use crate::kernels::vector::{Simd, Task, Version, dispatch, prefetch};

/// Bytes of a word.
const WORD: usize = size_of::<f32>();

/// Elements of a row or column that are widened at a time: a multiple of every vector.
const WIDENED: usize = 64;

impl<A: Float, B: Float> Pack<A, B> for Singles {
    fn is_ready(a: &Mat<'_, A>) -> bool {
        is_f32::<A>() && a.col_stride == 1 && !a.rows_collide()
    }

    fn rows<S: Simd, const R: usize>(s: S, from: Mat<'_, A>, to: &mut [f32]) {
        if from.col_stride == 1 {
            return widen_rows(from, to);
        }
        let (height, from) = (from.rows, left::Singles::new(from));
        s.call(left::Rows::<_, R> { from, height, to });
    }

    fn panels(version: Version, from: Mat<'_, B>, to: &mut [f32]) {
        dispatch(version, Panels { from, to });
    }
}

/// [`Pack::panels`] of single elements.
struct Panels<'a, T> {
    from: Mat<'a, T>,
    to: &'a mut [f32],
}

impl<T: Float> Task for Panels<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (rows, cols) = (self.from.rows, self.from.cols);
        if self.from.col_stride == 1 {
            let columns = self.from.t();
            for k in 0..rows {
                // Rows of a few panels end too soon for the processor to fetch ahead by itself.
                columns.fetch_column(k + left::AHEAD);
                for col in (0..cols).step_by(PANEL) {
                    self.copy(s, k, col);
                }
            }
            return;
        }
        for col in (0..cols).step_by(PANEL) {
            let mut done = 0;
            if self.from.row_stride == 1 && col + PANEL <= cols {
                while done + S::LANES <= rows {
                    let len = if is_f32::<T>() { S::LANES } else { WIDENED };
                    let len = len.min((rows - done) / S::LANES * S::LANES);
                    self.transpose(s, done, len, col);
                    done += len;
                }
            }
            for k in done..rows {
                self.copy(s, k, col);
            }
        }
    }
}

impl<T: Float> Panels<'_, T> {
    /// Some rows of the panel from column `col` on.
    #[inline(always)]
    fn part(&mut self, row: usize, rows: usize, col: usize) -> &mut [f32] {
        &mut self.to[col * self.from.rows + row * PANEL..][..rows * PANEL]
    }

    #[inline(always)]
    fn copy<S: Simd>(&mut self, s: S, k: usize, col: usize) {
        let Mat {
            data,
            cols,
            row_stride,
            col_stride,
            ..
        } = self.from;
        let width = PANEL.min(cols - col);
        let start = k * row_stride + col * col_stride;
        let to = self.part(k, 1, col);
        if col_stride == 1 && width == PANEL {
            let row = &data[start..start + PANEL];
            if let Some(row) = as_f32(row) {
                for c in (0..PANEL).step_by(S::LANES) {
                    s.store(&mut to[c..], s.load(&row[c..]));
                }
            } else {
                T::widen(row, to);
            }
        } else {
            to[width..].fill(0.0);
            let elements = (0..width).map(|c| data[start + c * col_stride].wide());
            to.iter_mut().zip(elements).for_each(|(to, x)| *to = x);
        }
    }

    /// Packs some rows, as many as a vector has elements or a multiple of that if they must be
    /// widened, side by side in columns that are dense.
    #[inline(always)]
    fn transpose<S: Simd>(&mut self, s: S, k: usize, rows: usize, col: usize) {
        let Mat {
            data, col_stride, ..
        } = self.from;
        let to = self.part(k, rows, col);
        let Some(data) = as_f32(data) else {
            let mut wide = [[0.0; WIDENED]; PANEL];
            for (c, wide) in wide.iter_mut().enumerate() {
                T::widen(
                    &data[(col + c) * col_stride + k..][..rows],
                    &mut wide[..rows],
                );
            }
            for k in (0..rows).step_by(S::LANES) {
                for c in (0..PANEL).step_by(S::LANES) {
                    let source = wide[c][k..].as_ptr();
                    let target = to[k * PANEL + c..].as_mut_ptr();
                    // SAFETY: `LANES` columns of `LANES` elements in both.
                    unsafe { s.transpose((source, WORD * WIDENED), (target, PANEL), None) }
                }
            }
            return;
        };
        for c in (0..PANEL).step_by(S::LANES) {
            let source = &data[(col + c) * col_stride + k..];
            for c in 0..S::LANES {
                // Two blocks ahead: there are more columns than the processor follows by itself.
                prefetch(source.as_ptr().wrapping_add(c * col_stride + 2 * S::LANES));
            }
            // SAFETY: `LANES` columns of `LANES` elements each lie in the matrix, whose bounds
            // `Mat::new` checked; as many rows in the panel.
            unsafe {
                s.transpose(
                    (source.as_ptr(), WORD * col_stride),
                    (to[c..].as_mut_ptr(), PANEL),
                    None,
                );
            }
        }
    }
}

/// Widens rows that are dense, one after the other.
fn widen_rows<T: Float>(from: Mat<'_, T>, to: &mut [f32]) {
    for (row, to) in to.chunks_exact_mut(from.cols.max(1)).enumerate() {
        T::widen(&from.from(row)[..from.cols], to);
    }
}
