//! Sums of products: which words they are of, which parts are summed at once, and whether sums are staged.

#![expect(unsafe_code, reason = "products write where they are told to")]

use super::coded::Factor;
use super::matrix::At;
use super::one_row::OneRow;
use super::product::{Product, Staged};
use super::round::{self, Target};
use super::tile::{Pairs, Singles};
use super::words::{DEPTH, KEPT_COLS, Pack};
use crate::Pool;
use crate::kernels::float::{Float, is_f32};
use crate::kernels::vector::Version;
use highwater_graph::DType;
use std::marker::PhantomData;

/// How sums of products are computed, and where.
pub(super) struct Sums<'a> {
    pub(super) pool: &'a Pool,
    pub(super) version: Version,
    pub(super) parallel: bool,
    pub(super) staging: &'a mut [f32],
}

impl Sums<'_> {
    /// Fills a target of so many rows and columns.
    ///
    /// # Safety
    /// The target must be valid for them, for writes by nobody else, and the factors must fit.
    pub(super) unsafe fn fill<'a, T: Float, A: Float, B: Float>(
        self,
        target: Target<T>,
        [rows, cols]: [usize; 2],
        factors: impl Iterator<Item = (Factor<'a, A>, Factor<'a, B>)> + Clone,
    ) {
        if is_f32::<T>() && target.grid.is_none() {
            let (to, mut from) = (target.to.cast(), target.from.map(At::<*const T>::cast));
            for (a, b) in factors {
                // SAFETY: the caller's.
                unsafe {
                    match OneRow::of(a, b) {
                        Some(row) => row.run(self.pool, self.parallel, self.version, from, to),
                        None => self.product(a, b, from, to, None),
                    }
                }
                from = Some(to.read());
            }
            return;
        }
        let count = factors.clone().count();
        let is_kept = count == 1 && factors.clone().all(|(a, _)| self.is_one_slice::<A, B>(&a));
        let [height, strip] = if is_kept {
            [rows, KEPT_COLS]
        } else {
            let packs_rows = factors.clone().any(|(a, _)| a.packs_rows());
            round::cut([rows, cols], packs_rows)
        };
        // What several products add up to is finished strip by strip.
        let width = if count == 1 { cols } else { strip };
        for row in (0..rows).step_by(height) {
            for col in (0..cols).step_by(width) {
                let (rows, cols) = (height.min(rows - row), width.min(cols - col));
                let target = target.skip(row, col);
                let len = if is_kept { 0 } else { rows * cols.min(strip) };
                let staging = &mut self.staging[..len];
                if count == 0 {
                    staging.fill(0.0);
                }
                let sums = At {
                    data: staging.as_mut_ptr(),
                    row_stride: cols.min(strip),
                    col_stride: 1,
                };
                // SAFETY: blocks of the target and of the sums; each is of one task.
                let round = |at, extents, sums| unsafe { target.round(at, extents, sums) };
                let place = |row, cols| target.place(row, cols);
                if count == 0 {
                    round([0, 0], [rows, cols], sums.read());
                }
                for (i, (a, b)) in factors.clone().enumerate() {
                    let from = (i > 0).then(|| sums.read());
                    let staged = Staged {
                        cols: strip,
                        is_kept,
                        round: (i + 1 == count).then_some(&round),
                        place: (count == 1).then_some(&place),
                    };
                    let depth = 0..a.extents()[1];
                    let a = a.part(row..row + rows, depth.clone());
                    let b = b.part(depth, col..col + cols);
                    // SAFETY: the sums are as many rows and, of a strip, columns.
                    unsafe { self.product(a, b, from, sums, Some(staged)) }
                }
            }
        }
    }

    fn has_pairs<A: Float, B: Float>(&self) -> bool {
        self.version.has_pairs() && A::is(DType::BF16) && B::is(DType::BF16)
    }

    /// Whether the sums of a task are whole at once, and nothing is decoded to where they could be kept.
    fn is_one_slice<A: Float, B: Float>(&self, a: &Factor<'_, A>) -> bool {
        let elements = if self.has_pairs::<A, B>() { 2 } else { 1 };
        !a.is_coded() && a.extents()[1] <= elements * DEPTH
    }

    /// One product in `f32`.
    ///
    /// # Safety
    /// As for [`Product::run`].
    unsafe fn product<A: Float, B: Float>(
        &self,
        a: Factor<'_, A>,
        b: Factor<'_, B>,
        from: Option<At<*const f32>>,
        to: At<*mut f32>,
        staged: Option<Staged<'_>>,
    ) {
        // SAFETY: the caller's.
        unsafe {
            match (a.of_bf16(), b.of_bf16()) {
                (Some(a), Some(b)) if self.has_pairs::<A, B>() => {
                    self.run::<Pairs, _, _>(a, b, from, to, staged);
                }
                _ => self.run::<Singles, _, _>(a, b, from, to, staged),
            }
        }
    }

    /// One product of words.
    ///
    /// # Safety
    /// As for [`Product::run`].
    pub(super) unsafe fn run<W: Pack<A, B>, A: Float, B: Float>(
        &self,
        a: Factor<'_, A>,
        b: Factor<'_, B>,
        from: Option<At<*const f32>>,
        to: At<*mut f32>,
        staged: Option<Staged<'_>>,
    ) {
        let product = Product {
            words: PhantomData::<fn() -> W>,
            version: self.version,
            a,
            b,
            from,
            to,
            staged,
        };
        // SAFETY: the caller's.
        unsafe { product.run(self.pool, self.parallel) }
    }
}
