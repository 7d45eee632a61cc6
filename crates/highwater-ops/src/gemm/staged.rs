//! Products into types narrower than `f32`: parts of the output are summed in `f32`, then rounded.

#![expect(unsafe_code, reason = "tasks round lines of one output")]

use super::{Mat, MatMut, PARALLEL, Plus, product};
use crate::float::{Float, is_f32};
use crate::strided::PIECE;
use crate::vector::Version;
use crate::{Disjoint, Pool};
use std::ops::Range;

/// Most rows and columns of a part: 2 MiB of `f32`. For each part the right factor is packed anew, so
/// rows are many.
const ROWS: usize = 512;
const COLS: usize = 1024;

/// Lines of a part that a task rounds.
const LINES: usize = 32;

/// Elements of staging that a product into a matrix of `T` needs.
pub(crate) fn staging_len<T: Float>(rows: usize, cols: usize) -> usize {
    // Outputs that are stored by columns are cut as their transposed.
    let part = |rows: usize, cols: usize| rows.min(ROWS) * cols.min(COLS);
    if is_f32::<T>() {
        0
    } else {
        part(rows, cols).max(part(cols, rows))
    }
}

/// The sum of products, in their order, plus what `plus` says, rounded once.
#[expect(
    clippy::needless_pass_by_value,
    reason = "called as products into `f32` are"
)]
pub(super) fn gemm<'a, T: Float, A: Float, B: Float>(
    pool: &Pool,
    out: MatMut<'_, T>,
    factors: impl Iterator<Item = (Mat<'a, A>, Mat<'a, B>)> + Clone,
    plus: Plus<'_, T>,
    staging: &mut [f32],
    parallel: bool,
) {
    let by_columns = out.row_stride < out.col_stride;
    let most = if by_columns {
        [COLS, ROWS]
    } else {
        [ROWS, COLS]
    };
    let strides = [out.row_stride, out.col_stride];
    let data = Disjoint::new(out.data);
    for row in (0..out.rows).step_by(most[0]) {
        for col in (0..out.cols).step_by(most[1]) {
            let rows = row..out.rows.min(row + most[0]);
            let cols = col..out.cols.min(col + most[1]);
            let sums = &mut staging[..rows.len() * cols.len()];
            let factors = factors.clone().map(|(a, b)| {
                let (depth_a, depth_b) = (0..a.cols, 0..b.rows);
                (a.part(rows.clone(), depth_a), b.part(depth_b, cols.clone()))
            });
            sum(
                pool,
                by_columns,
                [rows.len(), cols.len()],
                factors,
                sums,
                parallel,
            );
            let part = Part {
                data: &data,
                rows,
                cols,
                strides,
                by_columns,
                plus,
            };
            part.round(pool, sums, parallel);
        }
    }
}

/// Fills a part with the sum of products of factors.
fn sum<'a, A: Float, B: Float>(
    pool: &Pool,
    by_columns: bool,
    [rows, cols]: [usize; 2],
    factors: impl Iterator<Item = (Mat<'a, A>, Mat<'a, B>)>,
    sums: &mut [f32],
    parallel: bool,
) {
    let strides = if by_columns { [1, rows] } else { [cols, 1] };
    let mut first = true;
    for (a, b) in factors {
        let parallel = parallel && pool.threads() > 1 && rows * cols * a.cols >= PARALLEL;
        let mut sums = MatMut::new(&mut *sums, [rows, cols], strides);
        let plus = Plus::output_if(!first);
        let mut add = || product(pool, Version::Best, &mut sums, a, b, plus, parallel);
        if parallel {
            pool.run(add);
        } else {
            add();
        }
        first = false;
    }
    if first {
        sums.fill(0.0);
    }
}

/// A part of an output.
struct Part<'a, T> {
    data: &'a Disjoint<'a, T>,
    rows: Range<usize>,
    cols: Range<usize>,
    /// Of rows and of columns.
    strides: [usize; 2],
    /// Whether sums lie column after column.
    by_columns: bool,
    plus: Plus<'a, T>,
}

impl<T: Float> Part<'_, T> {
    /// Adds what is to be added to the sums and rounds them into the output.
    fn round(&self, pool: &Pool, sums: &[f32], parallel: bool) {
        let (lines, len) = if self.by_columns {
            (self.cols.len(), self.rows.len())
        } else {
            (self.rows.len(), self.cols.len())
        };
        if parallel && sums.len() >= PARALLEL {
            pool.for_each(lines.div_ceil(LINES), |task| {
                for line in task * LINES..lines.min((task + 1) * LINES) {
                    self.round_line(line, &sums[line * len..][..len]);
                }
            });
        } else {
            for (line, sums) in sums.chunks(len).enumerate() {
                self.round_line(line, sums);
            }
        }
    }

    fn round_line(&self, line: usize, sums: &[f32]) {
        let (row, col, step) = if self.by_columns {
            (self.rows.start, self.cols.start + line, self.strides[0])
        } else {
            (self.rows.start + line, self.cols.start, self.strides[1])
        };
        let start = row * self.strides[0] + col * self.strides[1];
        let (mut buffer, mut rounded) = ([0.0; PIECE], [T::zeroed(); PIECE]);
        for (i, sums) in sums.chunks(PIECE).enumerate() {
            let (at, len) = (i * PIECE, sums.len());
            let (buffer, rounded) = (&mut buffer[..len], &mut rounded[..len]);
            // SAFETY: each element of the output is of one line.
            let out =
                |i: usize, len: usize| unsafe { self.data.part(start + (at + i) * step, len) };
            match self.plus {
                Plus::Nothing => buffer.copy_from_slice(sums),
                Plus::Row(row) if self.by_columns => buffer.fill(row[col].wide()),
                Plus::Row(row) => T::widen(&row[col + at..col + at + len], buffer),
                Plus::Output if step == 1 => T::widen(out(0, len), buffer),
                Plus::Output => {
                    (buffer.iter_mut().enumerate()).for_each(|(i, x)| *x = out(i, 1)[0].wide());
                }
            }
            if !matches!(self.plus, Plus::Nothing) {
                buffer.iter_mut().zip(sums).for_each(|(x, sum)| *x += sum);
            }
            if step == 1 {
                T::round(buffer, out(0, len));
            } else {
                T::round(buffer, rounded);
                (rounded.iter().enumerate()).for_each(|(i, &x)| out(i, 1)[0] = x);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{gemm, gemm_serial, gemm_sum};
    use super::*;
    use crate::float::half_ulp;
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

    /// Rows, columns, depth: more than a part each way, in one slice of the depth and in several.
    const SHAPES: [[usize; 3]; 5] = [
        [600, 1030, 20],
        [1030, 600, 390],
        [37, 65, 800],
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
