//! What the backward kernel works on: a block of queries, and one of keys.

#![expect(unsafe_code, reason = "tasks write disjoint rows of the outputs")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::super::factors::Factors;
use super::super::product::{Extent, Left, Part as Wanted, STRIP, dot, multiply, transpose};
use super::super::rows::{BLOCK, Head, Rows, Scratch};
use super::{Backward, Part};
use crate::kernels::float::Float;
use crate::kernels::gemm::tile::Singles;
use crate::kernels::vector::{Simd, exp2};
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// A block of queries: rows of `f32`; what is named `_t` is rows of words transposed, queries side by side.
pub(super) struct Block<'a> {
    pub(super) rows: Range<usize>,
    queries: &'a mut [f32],
    queries_t: &'a mut [f32],
    grad: &'a mut [f32],
    grad_t: &'a mut [f32],
    pub(super) dq: &'a mut [f32],
    /// As exponents of 2, with the other sign.
    lse: &'a mut [f32],
    /// What is taken from the gradients of the weights.
    delta: &'a mut [f32],
}

/// A block of keys.
pub(super) struct Tile<'a> {
    pub(super) rows: Range<usize>,
    /// Rows.
    keys: &'a mut [f32],
    values: &'a mut [f32],
    /// The keys in `f32`, where rows are not.
    wide_keys: &'a mut [f32],
    /// Sums of gradients, for each block of keys that they are kept of.
    dk: &'a mut [f32],
    dv: &'a mut [f32],
    /// Scores, then weights: a row for each key.
    weights: &'a mut [f32],
    /// Gradients of the weights, then of the scores.
    grads: &'a mut [f32],
}

impl<'a> Block<'a> {
    pub(super) fn new(scratch: &mut Scratch<'a>, wide: usize) -> Self {
        let rows = BLOCK * wide;
        Self {
            rows: 0..0,
            queries: scratch.take(rows),
            queries_t: scratch.take(rows),
            grad: scratch.take(rows),
            grad_t: scratch.take(rows),
            dq: scratch.take(rows),
            lse: scratch.take(BLOCK),
            delta: scratch.take(BLOCK),
        }
    }
}

impl<'a> Tile<'a> {
    pub(super) fn new(
        scratch: &mut Scratch<'a>,
        wide: usize,
        [widened, summed]: [usize; 2],
    ) -> Self {
        let rows = BLOCK * wide;
        Self {
            rows: 0..0,
            keys: scratch.take(rows),
            values: scratch.take(rows),
            wide_keys: scratch.take(widened * wide),
            dk: scratch.take(summed * wide),
            dv: scratch.take(summed * wide),
            weights: scratch.take(BLOCK * BLOCK),
            grads: scratch.take(BLOCK * BLOCK),
        }
    }
}

impl Block<'_> {
    /// Packs the queries and what belongs to them.
    #[inline(always)]
    pub(super) fn load<S, T, W>(&mut self, s: S, of: &Backward<'_, T>, head: Head)
    where
        S: Simd,
        T: Float,
        W: Factors<T>,
    {
        let wide = W::padded(of.width);
        let rows = || self.rows.clone();
        of.o.widen(head, rows(), self.dq, wide);
        of.q.widen(head, rows(), self.queries, wide);
        match &of.grad {
            Some(grad) => grad.widen(head, rows(), self.grad, wide),
            None => self.grad.fill(0.0),
        }
        self.lse.fill(0.0);
        self.delta.fill(0.0);
        for (i, t) in self.rows.clone().enumerate() {
            let row = i * wide..(i + 1) * wide;
            let lse_grad = of.lse_grad.as_ref().map_or(0.0, |grad| grad.first(head, t));
            self.delta[i] = dot(s, &self.grad[row.clone()], &self.dq[row]) - lse_grad;
            self.lse[i] = -(of.lse.first(head, t) * LOG2_E);
        }
        let size = (W::padded(self.rows.len()), W::words(wide));
        let mut turn = |from: Option<&Rows<'_, T>>, wide: &[f32], to: &mut [f32], factor| {
            let from = match from {
                Some(from) if !W::ALIKE => {
                    W::rows(from, head, rows(), self.dq);
                    &*self.dq
                }
                _ => wide,
            };
            transpose(s, (from, size.1), to, BLOCK, size, factor);
        };
        turn(Some(&of.q), self.queries, self.queries_t, of.query_scale);
        turn(of.grad.as_ref(), self.grad, self.grad_t, None);
        self.dq.fill(0.0);
    }
}

impl Tile<'_> {
    /// Packs the keys and values, and their gradients so far: none if these are their `first`
    /// queries.
    ///
    /// # Safety
    /// No other thread may be at the gradients of the same keys, if `of` is for keys.
    #[inline(always)]
    pub(super) unsafe fn load<T: Float, W: Factors<T>>(
        &mut self,
        part: &Part<'_, T, W>,
        first: bool,
    ) {
        let (of, head) = (part.of, part.shared());
        let (rows, wide) = (|| self.rows.clone(), W::padded(of.width));
        W::rows(&of.k, head, rows(), self.keys);
        W::rows(&of.v, head, rows(), self.values);
        if !W::ALIKE {
            of.k.widen(head, rows(), self.wide_keys, wide);
        }
        let place = self.place(part);
        let sums = [
            (&of.dk, &mut self.dk[place.clone()]),
            (&of.dv, &mut self.dv[place]),
        ];
        for (so_far, sums) in sums {
            if first {
                sums.fill(0.0);
            } else if part.for_keys && !of.keeps {
                // SAFETY: the caller's.
                unsafe { so_far.pack(head, self.rows.clone(), (sums, wide)) }
            }
        }
    }

    /// Writes the gradients of the keys and values.
    ///
    /// # Safety
    /// No other thread may be at the same keys.
    pub(super) unsafe fn store<T: Float, W: Factors<T>>(&self, part: &Part<'_, T, W>) {
        let (of, place, wide) = (part.of, self.place(part), W::padded(part.of.width));
        for (to, sums) in [(&of.dk, &self.dk), (&of.dv, &self.dv)] {
            let sums = (&sums[place.clone()], wide);
            // SAFETY: the caller's.
            unsafe { to.unpack(part.shared(), self.rows.clone(), sums) }
        }
    }

    /// Where the sums of these keys are; some place, where nobody asks for them.
    #[inline(always)]
    fn place<T: Float, W: Factors<T>>(&self, part: &Part<'_, T, W>) -> Range<usize> {
        let wide = W::padded(part.of.width);
        let first = if part.for_keys && part.of.keeps {
            self.rows.start - part.keys.start
        } else {
            0
        };
        first * wide..(first + BLOCK) * wide
    }

    /// Adds what these keys and a block of queries say to each other's gradients.
    #[inline(always)]
    pub(super) fn meet<S, T, W>(&mut self, s: S, part: &Part<'_, T, W>, block: &mut Block<'_>)
    where
        S: Simd,
        T: Float,
        W: Factors<T>,
    {
        let (of, keys, n) = (part.of, self.rows.len(), block.rows.len());
        let (wide, columns) = (W::padded(of.width), W::padded(n));
        let words = W::words(wide);
        let diagonal = part.sight().diagonal(&block.rows, &self.rows);
        let extent = Extent {
            rows: keys,
            depth: W::words(of.width),
            columns,
            part: Wanted::ColumnsFrom.on(diagonal),
        };
        let (left, right) = (Left::rows(self.keys, words), (&*block.queries_t, BLOCK));
        multiply::<W, S>(s, left, right, self.weights, BLOCK, extent, false);
        let (left, right) = (Left::rows(self.values, words), (&*block.grad_t, BLOCK));
        multiply::<W, S>(s, left, right, self.grads, BLOCK, extent, false);
        part.sight().mask(self.weights, &block.rows, &self.rows);
        if diagonal {
            // What was left out is hidden, and must be finite.
            for (key, grads) in self.grads.chunks_exact_mut(BLOCK).take(keys).enumerate() {
                grads[..key / STRIP * STRIP].fill(0.0);
            }
        }
        self.weigh(s, block, of);
        if part.for_keys {
            let extent = Extent {
                rows: keys,
                depth: n,
                columns: wide,
                part: Wanted::DepthFrom.on(diagonal),
            };
            let place = self.place(part);
            let (left, right) = (Left::rows(self.weights, BLOCK), (&*block.grad, wide));
            let dv = &mut self.dv[place.clone()];
            multiply::<Singles, S>(s, left, right, dv, wide, extent, true);
            let (left, right) = (Left::rows(self.grads, BLOCK), (&*block.queries, wide));
            let dk = &mut self.dk[place];
            multiply::<Singles, S>(s, left, right, dk, wide, extent, true);
        }
        if part.for_queries {
            let extent = Extent {
                rows: n,
                depth: keys,
                columns: wide,
                part: Wanted::DepthUpTo.on(diagonal),
            };
            let keys = if W::ALIKE {
                &*self.keys
            } else {
                &*self.wide_keys
            };
            let (left, right) = (Left::columns(self.grads, BLOCK), (keys, wide));
            multiply::<Singles, S>(s, left, right, block.dq, wide, extent, true);
        }
    }

    /// Makes weights of the scores, and gradients of the scores of those of the weights.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S, block: &Block<'_>, of: &Backward<'_, impl Float>) {
        let (scale, score_scale) = (s.splat(of.scale), s.splat(of.score_scale));
        let (lse, delta) = (&*block.lse, &*block.delta);
        let columns = block.rows.len().next_multiple_of(16);
        let rows = self.weights.chunks_exact_mut(BLOCK);
        let rows = rows.zip(self.grads.chunks_exact_mut(BLOCK));
        for (weights, grads) in rows.take(self.rows.len()) {
            for column in (0..columns).step_by(S::LANES) {
                let (weight, grad) = (&mut weights[column..], &mut grads[column..]);
                let p = exp2(
                    s,
                    s.fma(s.load(weight), score_scale, s.load(&lse[column..])),
                );
                let above = s.sub(s.load(grad), s.load(&delta[column..]));
                s.store(weight, p);
                s.store(grad, s.mul(p, s.mul(above, scale)));
            }
        }
    }
}
