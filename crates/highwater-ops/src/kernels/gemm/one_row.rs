//! A row times a matrix that is stored by columns: what a decoder computes for each token that it generates.
//!
//! Packing would read and write the matrix for numbers that are used once. Here it is read where it lies, some columns
//! at a time, and transposed in the first cache, so that lanes are columns and an element of the product is the chain
//! that it is elsewhere.

#![expect(unsafe_code, reason = "tasks write elements of one output")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::coded::Factor;
use super::matrix::{At, Mat};
use super::words::slices;
use crate::Pool;
use crate::device::pool::buffers::SMALL;
use crate::kernels::float::{Float, as_f32};
use crate::kernels::vector::{Simd, Task, Version, dispatch, prefetch};
use std::ops::Range;

/// Columns of a task: a multiple of every vector.
const COLUMNS: usize = 64;
/// Most lanes of a vector.
const LANES: usize = 16;
/// How many elements ahead columns are asked for.
const AHEAD: usize = 64;

/// A row times a matrix.
pub(super) struct OneRow<'a, A> {
    row: Mat<'a, A>,
    /// The matrix, transposed: rows are dense.
    columns: Mat<'a>,
}

impl<'a, A: Float> OneRow<'a, A> {
    /// The product of two factors, if it is one.
    pub(super) fn of<B: Float>(a: Factor<'a, A>, b: Factor<'a, B>) -> Option<Self> {
        let (Factor::Plain(row), Factor::Plain(b)) = (a, b) else {
            return None;
        };
        if row.rows != 1 || b.row_stride != 1 || b.rows > SMALL {
            return None;
        }
        let columns = as_f32(b.data)?;
        let columns = Mat::new(columns, [b.cols, b.rows], [b.col_stride, 1]);
        Some(Self { row, columns })
    }

    /// `to = row · matrix`, or `to = from + row · matrix`.
    ///
    /// # Safety
    /// `from` and `to` must be valid for a row as wide as the matrix, `to` for writes by nobody else.
    pub(super) unsafe fn run(
        &self,
        pool: &Pool,
        parallel: bool,
        version: Version,
        from: Option<At<*const f32>>,
        to: At<*mut f32>,
    ) {
        let mut buffer = pool.buffers().small();
        let row = &mut buffer[..self.row.cols];
        for (k, x) in row.iter_mut().enumerate() {
            *x = self.row.at(0, k);
        }
        let whole = Part {
            row,
            columns: self.columns,
            own: 0..self.columns.rows,
            from,
            to,
        };
        let tasks = self.columns.rows.div_ceil(COLUMNS);
        if !parallel {
            return dispatch(version, whole);
        }
        let whole = &whole;
        pool.for_each(tasks, |task| {
            let start = task * COLUMNS;
            let own = start..whole.own.end.min(start + COLUMNS);
            dispatch(version, Part { own, ..*whole });
        });
    }
}

/// Some columns.
#[derive(Clone)]
struct Part<'a> {
    row: &'a [f32],
    columns: Mat<'a>,
    own: Range<usize>,
    from: Option<At<*const f32>>,
    to: At<*mut f32>,
}

/// Elements of some columns, transposed.
#[repr(align(64))]
struct Block([[f32; LANES]; LANES]);

// SAFETY: addresses of an output that outlives the product; each task writes columns of its own.
unsafe impl Sync for Part<'_> {}

impl Task for Part<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for first in self.own.clone().step_by(S::LANES) {
            let width = S::LANES.min(self.own.end - first);
            let mut added = [0.0; LANES];
            if let Some(from) = self.from {
                for (c, added) in added[..width].iter_mut().enumerate() {
                    // SAFETY: a column of the output, the caller's.
                    *added = unsafe { *from.data.add(from.offset(0, first + c)) };
                }
            }
            let mut sum = self.from.map(|_| s.load(&added));
            let depth = self.row.len();
            let slice = depth.div_ceil(slices(depth)).max(1);
            for start in (0..depth.max(1)).step_by(slice) {
                let of_slice = self.slice(s, first, start..depth.min(start + slice));
                sum = Some(sum.map_or(of_slice, |sum| s.add(sum, of_slice)));
            }
            let mut lanes = [0.0; LANES];
            s.store(&mut lanes, sum.unwrap_or(s.splat(0.0)));
            for (c, &x) in lanes[..width].iter().enumerate() {
                // SAFETY: as above.
                unsafe { *self.to.data.add(self.to.offset(0, first + c)) = x }
            }
        }
    }
}

impl Part<'_> {
    /// The sums of a slice of the depth, of as many columns as a vector has lanes.
    #[inline(always)]
    fn slice<S: Simd>(&self, s: S, first: usize, depth: Range<usize>) -> S::V {
        let (columns, mut sum, mut k) = (self.columns, s.splat(0.0), depth.start);
        if first + S::LANES <= columns.rows {
            let mut block = Block([[0.0; LANES]; LANES]);
            while k + S::LANES <= depth.end {
                let from = columns.from(first)[k..].as_ptr();
                // Behind the last elements of a column come the first of one in the next vector.
                let ahead = if k + AHEAD < self.row.len() {
                    AHEAD
                } else {
                    (AHEAD + S::LANES * columns.row_stride).wrapping_sub(self.row.len())
                };
                for c in 0..S::LANES {
                    prefetch(
                        from.wrapping_add(c * columns.row_stride)
                            .wrapping_add(ahead),
                    );
                }
                let stride = size_of::<f32>() * columns.row_stride;
                // SAFETY: as many columns and elements of each lie in the matrix, and fit the block.
                unsafe { s.transpose((from, stride), (block.0.as_mut_ptr().cast(), LANES), None) }
                for (x, words) in self.row[k..k + S::LANES].iter().zip(&block.0) {
                    sum = s.fma(s.splat(*x), s.load(words), sum);
                }
                k += S::LANES;
            }
        }
        for k in k..depth.end {
            let mut words = [0.0; LANES];
            for (c, word) in (first..columns.rows).zip(&mut words[..S::LANES]) {
                *word = columns.at(c, k);
            }
            sum = s.fma(s.splat(self.row[k]), s.load(&words), sum);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mat, MatMut, Plus, products};
    use super::*;

    /// Each row by itself, and all at once; on each instruction set.
    #[test]
    fn a_row_has_the_bits_that_it_has_among_others() {
        let numbers = |len: usize, seed: usize| -> Vec<f32> {
            let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0;
            (0..len).map(number).collect()
        };
        let m = 3;
        for [n, k] in [
            [1, 1],
            [3, 0],
            [16, 16],
            [40, 33],
            [65, 384],
            [130, 385],
            [300, 1200],
        ] {
            // Columns may lie apart.
            let (a, b) = (numbers(m * k, 1), numbers((k + 3) * n, 2));
            let (a, b) = (Mat::dense(&a, m, k), Mat::new(&b, [k, n], [1, k + 3]));
            let row = numbers(n, 3);
            for plus in [Plus::Nothing, Plus::Output, Plus::Row(&row)] {
                for version in [Version::Best, Version::Avx2, Version::Portable] {
                    let multiply = |threads: usize, rows: usize| {
                        let pool = Pool::new(threads).unwrap();
                        let mut c = vec![0.25; m * n];
                        for start in (0..m).step_by(rows) {
                            products(
                                &pool,
                                version,
                                &mut MatMut::dense(&mut c[start * n..], rows, n),
                                [(Factor::Plain(a.rows(start, rows)), Factor::Plain(b))],
                                plus,
                                &mut [],
                                threads > 1,
                            );
                        }
                        c.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
                    };
                    let want = multiply(1, m);
                    for threads in [1, 3] {
                        assert_eq!(want, multiply(threads, 1), "{version:?} {n} {k} {threads}");
                    }
                }
            }
        }
    }
}
