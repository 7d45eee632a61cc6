//! Matrix products of `f32`, on the `gemm` crate.
//!
//! The bits of a product depend on its extents, on which of them is the fast one in the output, and
//! on `accumulate`; not on threads, addresses or alignment. They also depend on how a product is
//! cut along its depth, which is never cut here.
//!
//! **Memory.** `gemm` packs operands into buffers that it allocates itself, the one allocation of
//! this crate's kernels. Outputs are cut into strips of [`STRIP`] lines, so that a call holds at
//! most [`STRIP`] x `kc` elements of one operand and 768 x `kc` of the other, where its depth `kc`
//! is at most 512 on x86 (6 MiB) and 1,024 elsewhere; besides, one buffer of the size of the
//! second-level cache per thread, that lives as long as the thread. Products that run side by side
//! (stacks of small ones) hold as much each, if they are that large.

#![expect(unsafe_code, reason = "the gemm crate takes pointers")]

use crate::Pool;

/// Most lines (rows of a row-major output, columns of a column-major one) of one call to `gemm`.
const STRIP: usize = 2048;

/// Most columns of a row-major output (rows of a column-major one) of one call to `gemm`, which
/// packs a slice of its depth over all of them.
const STRIP_COLS: usize = 4096;

/// Below this many multiplications a product runs on one thread.
const PARALLEL: usize = 1 << 16;

/// A matrix to read: any strides, 0 included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

/// Whether the last element of a matrix lies inside its data.
fn fits(len: usize, rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> bool {
    rows == 0 || cols == 0 || (rows - 1) * row_stride + (cols - 1) * col_stride < len
}

impl<'a> Mat<'a> {
    /// A matrix that starts with `data`; `shape` and `strides` are of rows, then columns.
    ///
    /// # Panics
    /// If it ends behind `data`.
    pub(crate) fn new(data: &'a [f32], shape: [usize; 2], strides: [usize; 2]) -> Self {
        let ([rows, cols], [row_stride, col_stride]) = (shape, strides);
        assert!(
            fits(data.len(), rows, cols, row_stride, col_stride),
            "a matrix must end inside its data"
        );
        Self {
            data,
            rows,
            cols,
            row_stride,
            col_stride,
        }
    }

    /// A dense row-major matrix.
    pub(crate) fn dense(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::new(data, [rows, cols], [cols, 1])
    }

    /// The transposed matrix.
    pub(crate) fn t(self) -> Self {
        Self::new(
            self.data,
            [self.cols, self.rows],
            [self.col_stride, self.row_stride],
        )
    }

    /// Some of the rows.
    pub(crate) fn rows(self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.rows, "rows must be of the matrix");
        let skip = (start * self.row_stride).min(self.data.len());
        Self::new(
            &self.data[skip..],
            [len, self.cols],
            [self.row_stride, self.col_stride],
        )
    }
}

/// A matrix to fill, whose elements all lie apart.
#[derive(Debug)]
pub(crate) struct MatMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> MatMut<'a> {
    /// A matrix that starts with `data`; `shape` and `strides` are of rows, then columns.
    ///
    /// # Panics
    /// If it ends behind `data`.
    pub(crate) fn new(data: &'a mut [f32], shape: [usize; 2], strides: [usize; 2]) -> Self {
        let ([rows, cols], [row_stride, col_stride]) = (shape, strides);
        assert!(
            fits(data.len(), rows, cols, row_stride, col_stride),
            "a matrix must end inside its data"
        );
        Self {
            data,
            rows,
            cols,
            row_stride,
            col_stride,
        }
    }

    /// A dense row-major matrix.
    pub(crate) fn dense(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::new(data, [rows, cols], [cols, 1])
    }

    fn t(self) -> Self {
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }
}

/// `out = a · b`, or `out += a · b` if `accumulate`, on the threads of `pool`.
///
/// # Panics
/// If the extents do not fit together.
pub(crate) fn gemm(pool: &Pool, out: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool) {
    let work = out.rows * out.cols * a.cols;
    if pool.threads() == 1 || work < PARALLEL {
        gemm_on(1, out, a, b, accumulate);
    } else {
        pool.run(|| gemm_on(pool.threads(), out, a, b, accumulate));
    }
}

/// [`gemm`] on the thread that calls.
pub(crate) fn gemm_serial(out: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool) {
    gemm_on(1, out, a, b, accumulate);
}

fn gemm_on(threads: usize, mut out: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool) {
    assert!(
        out.rows == a.rows && out.cols == b.cols && a.cols == b.rows,
        "the extents of a product must fit together"
    );
    // A column-major output is a row-major output of the transposed product.
    if out.row_stride < out.col_stride {
        strips(threads, &mut out.t(), b.t(), a.t(), accumulate);
    } else {
        strips(threads, &mut out, a, b, accumulate);
    }
}

fn strips(threads: usize, out: &mut MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool) {
    for row in (0..out.rows).step_by(STRIP) {
        let rows = STRIP.min(out.rows - row);
        for col in (0..out.cols).step_by(STRIP_COLS) {
            let cols = STRIP_COLS.min(out.cols - col);
            let skip = (row * out.row_stride + col * out.col_stride).min(out.data.len());
            let mut part = MatMut::new(
                &mut out.data[skip..],
                [rows, cols],
                [out.row_stride, out.col_stride],
            );
            let b = b.t().rows(col, cols).t();
            call(threads, &mut part, a.rows(row, rows), b, accumulate);
        }
    }
}

fn call(threads: usize, out: &mut MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool) {
    let parallelism = match threads {
        1 => gemm::Parallelism::None,
        _ => gemm::Parallelism::Rayon(threads),
    };
    // SAFETY: `Mat::new` and `MatMut::new` checked that every element of the three matrices lies
    // inside its slice, `gemm_on` that their extents fit together; `out` is borrowed mutably by
    // the caller, so no operand overlaps it.
    unsafe {
        gemm::gemm(
            out.rows,
            out.cols,
            a.cols,
            out.data.as_mut_ptr(),
            out.col_stride as isize,
            out.row_stride as isize,
            accumulate,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            1.0_f32,
            1.0_f32,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    const SHAPES: [[usize; 3]; 9] = [
        [1, 1, 1],
        [1, 300, 129],
        [300, 1, 129],
        [5, 7, 2],
        [37, 65, 130],
        [64, 64, 1000],
        [130, 257, 513],
        [2100, 33, 40],
        [33, 2100, 600],
    ];

    #[test]
    fn products_are_right_in_every_storage_order() {
        let pool = Pool::new(2).unwrap();
        for [m, n, k] in SHAPES {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            for orders in 0..8 {
                let strides = |bit: usize, rows: usize, cols: usize| match orders >> bit & 1 {
                    0 => [cols, 1],
                    _ => [1, rows],
                };
                let (sa, sb, sc) = (strides(0, m, k), strides(1, k, n), strides(2, m, n));
                let mut c = vec![0.5_f32; m * n];
                gemm(
                    &pool,
                    MatMut::new(&mut c, [m, n], sc),
                    Mat::new(&a, [m, k], sa),
                    Mat::new(&b, [k, n], sb),
                    orders % 3 == 0,
                );
                let start = if orders % 3 == 0 { 0.5 } else { 0.0 };
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).step_by(7) {
                    let want: f64 = (0..k)
                        .map(|l| {
                            let a = a[i * sa[0] + l * sa[1]];
                            f64::from(a) * f64::from(b[l * sb[0] + j * sb[1]])
                        })
                        .sum();
                    let got = f64::from(c[i * sc[0] + j * sc[1]]);
                    let wrong = (got - want - start).abs();
                    assert!(wrong < 1e-4, "{m} {n} {k} {orders}: {got} for {want}");
                }
            }
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads_or_alignment() {
        for [m, n, k] in SHAPES {
            let (a, b) = (numbers(m * k, 3), numbers(k * n, 4));
            for column_major in [false, true] {
                let mut first: Option<Vec<u32>> = None;
                for (threads, shift) in [(1, 0), (2, 0), (3, 1), (4, 3), (1, 7), (2, 5)] {
                    let pool = Pool::new(threads).unwrap();
                    let shifted = |data: &[f32]| [&vec![0.0; shift], data].concat();
                    let (a, b, mut c) = (shifted(&a), shifted(&b), vec![1.0; shift + m * n]);
                    let strides = if column_major { [1, m] } else { [n, 1] };
                    for accumulate in [false, true] {
                        gemm(
                            &pool,
                            MatMut::new(&mut c[shift..], [m, n], strides),
                            Mat::dense(&a[shift..], m, k),
                            Mat::dense(&b[shift..], k, n),
                            accumulate,
                        );
                    }
                    let bits: Vec<u32> = c[shift..].iter().map(|x| x.to_bits()).collect();
                    assert_eq!(*first.get_or_insert_with(|| bits.clone()), bits);
                }
            }
        }
    }

    #[test]
    fn no_depth_gives_zero_and_no_rows_give_nothing() {
        let pool = Pool::new(1).unwrap();
        let mut c = [7.0; 6];
        let empty = Mat::dense(&[], 2, 0);
        gemm(
            &pool,
            MatMut::dense(&mut c, 2, 3),
            empty,
            Mat::dense(&[], 0, 3),
            false,
        );
        assert!(c.iter().all(|x| x.to_bits() == 0));
        gemm(
            &pool,
            MatMut::dense(&mut [], 0, 3),
            Mat::dense(&[], 0, 2),
            Mat::dense(&c, 2, 3),
            false,
        );
    }
}
