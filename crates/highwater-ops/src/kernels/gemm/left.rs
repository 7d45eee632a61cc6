//! Left factors that are stored by columns, packed into groups of rows ([`groups`]): the rows of a group
//! side by side, a word of each for each step of the depth.
//!
//! A group has fewer rows than a vector has lanes (14 of 16, 6 of 8). A step is stored as a whole vector all
//! the same: what it writes too much, the next step of the group writes over. Columns lie pages apart, where
//! no processor fetches ahead by itself, so each step asks for what some steps later reads, and where it writes:
//! stores are done in their order, and each would wait for its line.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::matrix::Mat;
use super::tile::groups;
use super::words::ROWS;
use crate::kernels::float::{Float, as_f32, is_f32};
use crate::kernels::vector::{Simd, Task, prefetch};

/// How many steps ahead columns are asked for.
pub(super) const AHEAD: usize = 8;

/// Most lanes of a vector.
const LANES: usize = 16;

/// A left factor, step by step.
pub(super) trait Steps {
    /// How many there are.
    fn count(&self) -> usize;
    /// Called before words of a step are asked for.
    fn begin(&mut self, step: usize);
    /// Words of a step, of as many rows from one on as a vector has lanes, if they may all be read.
    fn vector<S: Simd>(&self, s: S, step: usize, row: usize) -> Option<S::V>;
    /// The word of a row.
    fn word(&self, step: usize, row: usize) -> f32;
}

/// Packs as many rows as its height, in groups of `R` and what is left.
pub(super) struct Rows<'a, F, const R: usize> {
    pub(super) from: F,
    pub(super) height: usize,
    pub(super) to: &'a mut [f32],
}

impl<F: Steps, const R: usize> Task for Rows<'_, F, R> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (rows, steps) = (self.height, self.from.count());
        assert!(self.to.len() == rows * steps, "packed rows must fit");
        for step in 0..steps {
            self.from.begin(step);
            for (row, size) in groups::<R>(rows) {
                let group = &mut self.to[row * steps..][step * size..steps * size];
                prefetch(group.as_ptr().wrapping_add(AHEAD * size));
                for first in (0..size).step_by(S::LANES) {
                    let to = &mut group[first..];
                    let words = self.from.vector(s, step, row + first);
                    match words.filter(|_| to.len() >= S::LANES) {
                        Some(words) => s.store(to, words),
                        None => {
                            for (i, to) in to.iter_mut().take(size - first).enumerate() {
                                *to = self.from.word(step, row + first + i);
                            }
                        }
                    }
                }
            }
        }
    }
}

impl<T: Float> Mat<'_, T> {
    /// Asks for a column, if its elements lie side by side.
    #[inline(always)]
    pub(super) fn fetch_column(&self, col: usize) {
        if self.row_stride == 1 && col < self.cols {
            let column = self.data.as_ptr().wrapping_add(col * self.col_stride);
            for row in (0..self.rows).step_by(64 / size_of::<T>()) {
                prefetch(column.wrapping_add(row).cast());
            }
        }
    }

    /// Elements of a column from a row on, if as many as a vector has lanes lie side by side.
    #[inline(always)]
    pub(super) fn lanes<S: Simd>(&self, _: S, row: usize, col: usize) -> Option<&[T]> {
        let start = col * self.col_stride + row;
        let is_dense = self.row_stride == 1 && col < self.cols;
        is_dense.then(|| self.data.get(start..start + S::LANES))?
    }
}

/// Steps of single numbers, widened.
pub(super) struct Singles<'a, T> {
    from: Mat<'a, T>,
    /// The numbers of a step, if they are not `f32` as they lie.
    wide: [f32; ROWS + LANES],
}

impl<'a, T: Float> Singles<'a, T> {
    pub(super) fn new(from: Mat<'a, T>) -> Self {
        let wide = [0.0; ROWS + LANES];
        Self { from, wide }
    }
}

impl<T: Float> Steps for Singles<'_, T> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.from.cols
    }

    #[inline(always)]
    fn begin(&mut self, step: usize) {
        let from = self.from;
        from.fetch_column(step + AHEAD);
        if !is_f32::<T>() && from.row_stride == 1 {
            let column = &from.data[step * from.col_stride..][..from.rows];
            T::widen(column, &mut self.wide[..from.rows]);
        }
    }

    #[inline(always)]
    fn vector<S: Simd>(&self, s: S, step: usize, row: usize) -> Option<S::V> {
        let lanes = self.from.lanes(s, row, step)?;
        Some(s.load(as_f32(lanes).unwrap_or(&self.wide[row..])))
    }

    #[inline(always)]
    fn word(&self, step: usize, row: usize) -> f32 {
        self.from.at(row, step)
    }
}
