//! The forward kernel.
//!
//! Blocks of 64 queries meet blocks of 64 keys (Dao, "FlashAttention-2", 2023): scores, 16 KiB, and
//! what they are made of stay in the first two caches, and both products are tiles of `gemm`. Scores
//! lie transposed, queries side by side, so that maxima and sums are one lane a query and nothing is
//! summed across lanes. The scale takes base two in, so that an exponential is one polynomial. Up to
//! four blocks of queries share the keys and values that one packed; blocks that the mask hides whole
//! are never multiplied, and half of what a block on the diagonal hides is left out.
//!
//! Where the processor multiplies pairs, factors of `bf16` are taken as they are (`factors.rs`): queries and
//! keys in pairs along a row, values and weights in pairs of keys. Weights are rounded, as PyTorch's are, their
//! sums are not. Else, and for other narrow types, factors are widened as they are packed: products are `f32`'s.
//!
//! A query meets its keys in ascending blocks, whichever task it is in, and sums go on from block to block:
//! bits follow from shapes and from what is seen. The pairs took the forward from 155 to 258 GFLOP/s at 4 x
//! 12 x 512 x 64 (two threads, BENCHMARKS.md).

#![expect(unsafe_code, reason = "tasks write disjoint rows of one output")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::ScaledDotProductAttention;
use super::documents::Documents;
use super::factors::{Factors, in_pairs, wide};
use super::product::{Extent, Left, Part as Wanted, multiply, transpose};
use super::rows::{BLOCK, Head, Rows, RowsMut, Scratch};
use super::sight::{Seen, Sight};
use crate::kernels::float::Float;
use crate::kernels::gemm::tile::{Pairs, Singles};
use crate::kernels::vector::{Simd, Task, Version, dispatch, exp2};
use crate::{Args, Disjoint, Kernel, KernelError, op_as};
use half::bf16;
use highwater_graph::{Op, Shape, Spec};
use smallvec::SmallVec;
use std::f32::consts::LN_2;
use std::f64::consts::LOG2_E;
use std::marker::PhantomData;
use std::ops::Range;

/// The most blocks of queries that a task takes.
const GROUP: usize = 4;

/// How many blocks of queries a task takes: more share the packing of keys and values, fewer keep
/// all threads busy.
fn group(q: &Shape) -> usize {
    let blocks = q[2].div_ceil(BLOCK);
    let enough = |&group: &usize| q[0] * q[1] * blocks.div_ceil(group) >= 16;
    (2..=GROUP.min(blocks)).rev().find(enough).unwrap_or(1)
}

/// Elements of scratch memory per thread.
fn scratch<T: Float>(q: &Shape) -> usize {
    let rows = BLOCK * wide::<T>(q[3]);
    2 * rows + BLOCK * BLOCK + group(q) * (2 * rows + 3 * BLOCK)
}

/// Fills `o` and `lse`, one task per block of queries.
pub(super) struct ForwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for ForwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        (threads * scratch::<T>(inputs[0].shape()) * size_of::<f32>()) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        run::<T>(op, args, Version::Best)
    }
}

/// The kernel on an instruction set.
pub(super) fn run<T: Float>(
    op: &dyn Op,
    args: &mut Args<'_>,
    version: Version,
) -> Result<(), KernelError> {
    let op = op_as::<ScaledDotProductAttention>(op)?;
    if in_pairs::<T>(version, op.scale) {
        run_with::<bf16, Pairs>(op, args, version)
    } else {
        run_with::<T, Singles>(op, args, version)
    }
}

/// The same with words of a kind.
pub(super) fn run_with<T: Float, W: Factors<T>>(
    op: &ScaledDotProductAttention,
    args: &mut Args<'_>,
    version: Version,
) -> Result<(), KernelError> {
    let &[batch, heads, queries, width] = args.inputs[0].dims() else {
        return Err(KernelError::WrongOp { op: op.name() });
    };
    let inputs = &*args.inputs;
    let (out, lse) = args.outputs.split_at_mut(1);
    let layout = out[0].layout();
    let storage = Disjoint::new(out[0].storage_mut::<T>()?);
    let (query_scale, score_scale) = W::split((op.scale * LOG2_E) as f32);
    let forward = Forward {
        q: Rows::new(&inputs[0])?,
        k: Rows::new(&inputs[1])?,
        v: Rows::new(&inputs[2])?,
        o: RowsMut::new(&storage, layout),
        lse: Disjoint::new(lse[0].slice_mut()?),
        heads,
        sharing: (heads / inputs[1].dims()[1].max(1)).max(1),
        queries,
        keys: inputs[1].dims()[2],
        width,
        sight: op.sight(),
        documents: (op.documents.then(|| Documents::new(&inputs[3], queries))).transpose()?,
        query_scale,
        score_scale,
    };
    let len = scratch::<T>(inputs[0].spec().shape());
    let scratch = Disjoint::new(bytemuck::cast_slice_mut(args.scratch));
    let group = BLOCK * group(inputs[0].spec().shape());
    let parts = queries.div_ceil(group);
    args.pool
        .for_each_on_thread(batch * heads * parts, |task, thread| {
            let (head, start) = (task / parts, task % parts * group);
            // SAFETY: each thread has its own part.
            let scratch = unsafe { scratch.part(thread * len, len) };
            dispatch(
                version,
                Part::<T, W> {
                    words: PhantomData,
                    of: &forward,
                    head: Head(head / heads, head % heads),
                    queries: start..queries.min(start + group),
                    scratch: Scratch(scratch),
                },
            );
        });
    Ok(())
}

struct Forward<'a, T> {
    q: Rows<'a, T>,
    k: Rows<'a, T>,
    v: Rows<'a, T>,
    o: RowsMut<'a, T>,
    lse: Disjoint<'a, f32>,
    heads: usize,
    /// Heads of queries that share one of keys and values.
    sharing: usize,
    queries: usize,
    keys: usize,
    width: usize,
    sight: Sight,
    documents: Option<Documents<'a>>,
    /// Both together make scores exponents of 2.
    query_scale: Option<f32>,
    score_scale: f32,
}

impl<T: Float> Forward<'_, T> {
    /// Asks for keys and values.
    #[inline(always)]
    fn fetch(&self, shared: Head, rows: Range<usize>) {
        self.k.fetch(shared, rows.clone());
        self.v.fetch(shared, rows);
    }
}

/// Some blocks of queries of one head.
struct Part<'a, T, W> {
    words: PhantomData<W>,
    of: &'a Forward<'a, T>,
    head: Head,
    queries: Range<usize>,
    scratch: Scratch<'a>,
}

/// A block of queries.
struct Block<'a> {
    rows: Range<usize>,
    /// Rows, transposed: queries side by side.
    queries: &'a mut [f32],
    /// Rows of sums.
    out: &'a mut [f32],
    softmax: Softmax<'a>,
}

/// Running statistics of the scores of each query.
struct Softmax<'a> {
    max: &'a mut [f32],
    sum: &'a mut [f32],
    /// What sums made under the former maximum must be multiplied by.
    rescale: &'a mut [f32],
}

/// Rows of keys and steps of values of a block of keys; and scores of a block of queries, a row for each
/// key, then weights, a step for each word of keys.
struct Tile<'a> {
    rows: Range<usize>,
    keys: &'a mut [f32],
    values: &'a mut [f32],
    scores: &'a mut [f32],
}

impl<T: Float, W: Factors<T>> Task for Part<'_, T, W> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (of, head) = (self.of, self.head);
        let wide = W::padded(of.width);
        let mut tile = Tile {
            rows: 0..0,
            keys: self.scratch.take(BLOCK * wide),
            values: self.scratch.take(BLOCK * wide),
            scores: self.scratch.take(BLOCK * BLOCK),
        };
        let mut blocks: SmallVec<[Block<'_>; GROUP]> = SmallVec::new();
        for start in self.queries.clone().step_by(BLOCK) {
            blocks.push(Block {
                rows: start..self.queries.end.min(start + BLOCK),
                queries: self.scratch.take(BLOCK * wide),
                out: self.scratch.take(BLOCK * wide),
                softmax: Softmax {
                    max: self.scratch.take(BLOCK),
                    sum: self.scratch.take(BLOCK),
                    rescale: self.scratch.take(BLOCK),
                },
            });
        }
        let shared = Head(head.0, head.1 / of.sharing);
        let sight = Seen::new(of.sight, of.documents, head.0);
        let seen = sight.keys(&self.queries, of.keys);
        let rows = |start: usize| start..seen.end.min(start + BLOCK);
        let first = seen.start / BLOCK * BLOCK;
        of.q.fetch(head, self.queries.clone());
        of.fetch(shared, rows(first));
        for block in &mut blocks {
            block.load::<S, T, W>(s, of, head);
        }
        for start in (first..seen.end).step_by(BLOCK) {
            tile.rows = rows(start);
            W::rows(&of.k, shared, tile.rows.clone(), tile.keys);
            W::steps(&of.v, shared, tile.rows.clone(), tile.values);
            of.fetch(shared, rows(tile.rows.end));
            for block in &mut blocks {
                if sight.meets(&block.rows, &tile.rows) {
                    block.attend::<S, T, W>(s, of, &sight, &mut tile);
                }
            }
        }
        for block in &mut blocks {
            block.finish(of, head, wide);
        }
    }
}

impl Block<'_> {
    /// Packs the queries; nothing is summed yet.
    #[inline(always)]
    fn load<S, T, W>(&mut self, s: S, of: &Forward<'_, T>, head: Head)
    where
        S: Simd,
        T: Float,
        W: Factors<T>,
    {
        let words = W::words(W::padded(of.width));
        let size = (W::padded(self.rows.len()), words);
        W::rows(&of.q, head, self.rows.clone(), self.out);
        let from = (&*self.out, words);
        transpose(s, from, self.queries, BLOCK, size, of.query_scale);
        self.out.fill(0.0);
        // Finite: a query may see none of the first keys that its block does.
        self.softmax.max.fill(f32::MIN);
        self.softmax.sum.fill(0.0);
    }

    /// Takes in a block of keys and values.
    #[inline(always)]
    fn attend<S, T, W>(&mut self, s: S, of: &Forward<'_, T>, sight: &Seen<'_>, tile: &mut Tile<'_>)
    where
        S: Simd,
        T: Float,
        W: Factors<T>,
    {
        let (n, wide) = (self.rows.len(), W::padded(of.width));
        let (keys, columns) = (tile.rows.len(), W::padded(n));
        let diagonal = sight.diagonal(&self.rows, &tile.rows);
        // Scores lie transposed, queries side by side, so that nothing is summed across lanes.
        let left = Left::rows(tile.keys, W::words(wide));
        let extent = Extent {
            rows: keys,
            depth: W::words(of.width),
            columns,
            part: Wanted::ColumnsFrom.on(diagonal),
        };
        let right = (&*self.queries, BLOCK);
        multiply::<W, S>(s, left, right, tile.scores, BLOCK, extent, false);
        sight.mask(tile.scores, &self.rows, &tile.rows);
        // Keys that are missing in the last word.
        tile.scores[keys * BLOCK..W::words(keys) * W::ELEMENTS * BLOCK].fill(f32::NEG_INFINITY);
        let scores = tile.scores.as_chunks_mut().0;
        let scale = s.splat(of.score_scale);
        (self.softmax).update::<S, T, W>(s, scores, scale, [W::words(keys), columns]);
        scale_rows(s, self.out, &self.softmax.rescale[..n], wide);
        let left = Left::columns(tile.scores, BLOCK);
        let extent = Extent {
            rows: n,
            depth: W::words(keys),
            columns: wide,
            part: Wanted::DepthUpTo.on(diagonal),
        };
        let right = (&*tile.values, wide);
        multiply::<W, S>(s, left, right, self.out, wide, extent, true);
    }

    /// Divides by the sums and writes the results.
    #[inline(always)]
    fn finish(&mut self, of: &Forward<'_, impl Float>, head: Head, wide: usize) {
        let n = self.rows.len();
        let Softmax { max, sum, .. } = &self.softmax;
        for (i, &sum) in sum[..n].iter().enumerate() {
            // No keys: the empty sum, not 0 / 0.
            let factor = if of.keys == 0 { 0.0 } else { 1.0 / sum };
            for out in &mut self.out[i * wide..][..wide] {
                *out *= factor;
            }
        }
        let Head(b, h) = head;
        let start = (b * of.heads + h) * of.queries + self.rows.start;
        // SAFETY: these queries are this task's.
        let lse = unsafe {
            of.o.unpack(head, self.rows.clone(), (self.out, wide));
            of.lse.part(start, n)
        };
        for (i, lse) in lse.iter_mut().enumerate() {
            *lse = max[i] * LN_2 + sum[i].ln();
        }
    }
}

/// Multiplies each row by its factor.
#[inline(always)]
fn scale_rows<S: Simd>(s: S, rows: &mut [f32], factors: &[f32], wide: usize) {
    if wide == 0 {
        return;
    }
    for (row, &factor) in rows.chunks_exact_mut(wide).zip(factors) {
        let factor = s.splat(factor);
        for x in row.chunks_exact_mut(S::LANES) {
            s.store(x, s.mul(s.load(x), factor));
        }
    }
}

impl Softmax<'_> {
    /// Takes in the scores, not scaled yet, of so many more words of keys, and makes them weights under the
    /// new maximum.
    #[inline(always)]
    fn update<S, T, W>(
        &mut self,
        s: S,
        scores: &mut [[f32; BLOCK]],
        scale: S::V,
        [words, columns]: [usize; 2],
    ) where
        S: Simd,
        T: Float,
        W: Factors<T>,
    {
        let mut column = 0;
        while column + 4 * S::LANES <= columns {
            self.update_columns::<S, T, W, 4>(s, scores, scale, [words, column]);
            column += 4 * S::LANES;
        }
        while column < columns {
            self.update_columns::<S, T, W, 1>(s, scores, scale, [words, column]);
            column += S::LANES;
        }
    }

    #[inline(always)]
    fn update_columns<S, T, W, const V: usize>(
        &mut self,
        s: S,
        scores: &mut [[f32; BLOCK]],
        scale: S::V,
        [words, column]: [usize; 2],
    ) where
        S: Simd,
        T: Float,
        W: Factors<T>,
    {
        let at = |v: usize| column + v * S::LANES;
        let mut most = [s.splat(f32::NEG_INFINITY); V];
        for scores in &scores[..words * W::ELEMENTS] {
            for (v, most) in most.iter_mut().enumerate() {
                *most = s.max(s.load(&scores[at(v)..]), *most);
            }
        }
        let (mut less, mut sum) = ([s.splat(0.0); V], [s.splat(0.0); V]);
        for v in 0..V {
            let old = s.load(&self.max[at(v)..]);
            let max = s.max(s.mul(most[v], scale), old);
            let rescale = exp2(s, s.sub(old, max));
            sum[v] = s.mul(s.load(&self.sum[at(v)..]), rescale);
            less[v] = s.sub(s.splat(0.0), max);
            s.store(&mut self.rescale[at(v)..], rescale);
            s.store(&mut self.max[at(v)..], max);
        }
        for word in 0..words {
            for v in 0..V {
                let mut weights = [s.splat(0.0); 2];
                for (e, weight) in weights[..W::ELEMENTS].iter_mut().enumerate() {
                    let score = s.load(&scores[word * W::ELEMENTS + e][at(v)..]);
                    *weight = exp2(s, s.fma(score, scale, less[v]));
                    sum[v] = s.add(sum[v], *weight);
                }
                // Over scores that were read.
                s.store(&mut scores[word][at(v)..], W::down(s, weights));
            }
        }
        for (v, &sum) in sum.iter().enumerate() {
            s.store(&mut self.sum[at(v)..], sum);
        }
    }
}
