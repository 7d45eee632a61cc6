//! The forward kernel.
//!
//! Blocks of 64 queries meet blocks of 64 keys (Dao, "FlashAttention-2", 2023): scores, 16 KiB, and
//! what they are made of stay in the first two caches, and both products are tiles of `gemm`. Scores
//! lie transposed, queries side by side, so that maxima and sums are one lane a query and nothing is
//! summed across lanes. The scale takes base two in, so that an exponential is one polynomial. Up to
//! four blocks of queries share the keys and values that one packed; blocks that the mask hides whole
//! are never multiplied. Factors of narrow types are widened as they are packed: products are `f32`'s.

#![expect(unsafe_code, reason = "tasks write disjoint rows of one output")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::ScaledDotProductAttention;
use super::documents::Documents;
use super::product::{Extent, Left, multiply, transpose};
use super::rows::{BLOCK, Head, Rows, RowsMut, Scratch, padded};
use super::sight::{Seen, Sight};
use crate::float::Float;
use crate::vector::{Simd, Task, Version, dispatch, exp2};
use crate::{Args, Disjoint, Kernel, KernelError, op_as};
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
fn scratch(q: &Shape) -> usize {
    let rows = BLOCK * padded(q[3]);
    2 * rows + BLOCK * BLOCK + group(q) * (2 * rows + 3 * BLOCK)
}

/// Fills `o` and `lse`, one task per block of queries.
pub(super) struct ForwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for ForwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        (threads * scratch(inputs[0].shape()) * size_of::<f32>()) as u64
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
    let &[batch, heads, queries, width] = args.inputs[0].dims() else {
        return Err(KernelError::WrongOp { op: op.name() });
    };
    let inputs = &*args.inputs;
    let (out, lse) = args.outputs.split_at_mut(1);
    let layout = out[0].layout();
    let storage = Disjoint::new(out[0].storage_mut::<T>()?);
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
        scale: (op.scale * LOG2_E) as f32,
    };
    let len = scratch(inputs[0].spec().shape());
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
                Part {
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
    /// Makes scores exponents of 2.
    scale: f32,
}

/// Some blocks of queries of one head.
struct Part<'a, T> {
    of: &'a Forward<'a, T>,
    head: Head,
    queries: Range<usize>,
    scratch: Scratch<'a>,
}

/// A block of queries.
struct Block<'a> {
    rows: Range<usize>,
    /// Dense rows, transposed: queries side by side.
    queries: &'a mut [f32],
    /// Dense rows.
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

/// Keys and values of a block of keys, dense, and scores of a block of queries, a row for each key.
struct Tile<'a> {
    rows: Range<usize>,
    keys: &'a mut [f32],
    values: &'a mut [f32],
    scores: &'a mut [f32],
}

impl<T: Float> Task for Part<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (of, head) = (self.of, self.head);
        let wide = padded(of.width);
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
        for block in &mut blocks {
            block.load(s, of, head);
        }
        let shared = Head(head.0, head.1 / of.sharing);
        let sight = Seen::new(of.sight, of.documents, head.0);
        let seen = sight.keys(&self.queries, of.keys);
        for start in (seen.start / BLOCK * BLOCK..seen.end).step_by(BLOCK) {
            tile.rows = start..seen.end.min(start + BLOCK);
            of.k.pack(shared, tile.rows.clone(), tile.keys);
            of.v.pack(shared, tile.rows.clone(), tile.values);
            for block in &mut blocks {
                if sight.meets(&block.rows, &tile.rows) {
                    block.attend(s, of, &sight, &mut tile);
                }
            }
        }
        for block in &mut blocks {
            block.finish(of, head);
        }
    }
}

impl Block<'_> {
    /// Packs the queries, scaled; nothing is summed yet.
    #[inline(always)]
    fn load<S: Simd>(&mut self, s: S, of: &Forward<'_, impl Float>, head: Head) {
        let wide = padded(of.width);
        let size = (padded(self.rows.len()), wide);
        of.q.pack(head, self.rows.clone(), self.out);
        transpose(s, (self.out, wide), self.queries, BLOCK, size, of.scale);
        self.out.fill(0.0);
        // Finite: a query may see none of the first keys that its block does.
        self.softmax.max.fill(f32::MIN);
        self.softmax.sum.fill(0.0);
    }

    /// Takes in a block of keys and values.
    #[inline(always)]
    fn attend<S: Simd>(
        &mut self,
        s: S,
        of: &Forward<'_, impl Float>,
        sight: &Seen<'_>,
        tile: &mut Tile<'_>,
    ) {
        let (n, wide) = (self.rows.len(), padded(of.width));
        let (keys, columns) = (tile.rows.len(), padded(n));
        // Scores lie transposed, queries side by side, so that nothing is summed across lanes.
        let left = Left::rows(tile.keys, wide);
        let extent = Extent {
            rows: keys,
            depth: of.width,
            columns,
        };
        let right = (&*self.queries, BLOCK);
        multiply(s, left, right, tile.scores, BLOCK, extent, false);
        sight.mask(tile.scores, &self.rows, &tile.rows);
        self.softmax.update(s, tile.scores, keys, columns);
        scale_rows(s, self.out, &self.softmax.rescale[..n], wide);
        let left = Left::columns(tile.scores, BLOCK);
        let extent = Extent {
            rows: n,
            depth: keys,
            columns: wide,
        };
        let right = (&*tile.values, wide);
        multiply(s, left, right, self.out, wide, extent, true);
    }

    /// Divides by the sums and writes the results.
    #[inline(always)]
    fn finish(&mut self, of: &Forward<'_, impl Float>, head: Head) {
        let (n, wide) = (self.rows.len(), padded(of.width));
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
            of.o.unpack(head, self.rows.clone(), self.out);
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
    /// Takes in the scores of `keys` more keys and makes them weights under the new maximum.
    #[inline(always)]
    fn update<S: Simd>(&mut self, s: S, scores: &mut [f32], keys: usize, columns: usize) {
        let mut column = 0;
        while column + 4 * S::LANES <= columns {
            self.update_columns::<S, 4>(s, scores, keys, column);
            column += 4 * S::LANES;
        }
        while column < columns {
            self.update_columns::<S, 1>(s, scores, keys, column);
            column += S::LANES;
        }
    }

    #[inline(always)]
    fn update_columns<S: Simd, const V: usize>(
        &mut self,
        s: S,
        scores: &mut [f32],
        keys: usize,
        column: usize,
    ) {
        let at = |v: usize| column + v * S::LANES;
        let old: [S::V; V] = std::array::from_fn(|v| s.load(&self.max[at(v)..]));
        let mut max = old;
        for scores in scores.chunks_exact(BLOCK).take(keys) {
            for (v, max) in max.iter_mut().enumerate() {
                *max = s.max(s.load(&scores[at(v)..]), *max);
            }
        }
        let mut sum = [s.splat(0.0); V];
        for v in 0..V {
            let rescale = exp2(s, s.sub(old[v], max[v]));
            sum[v] = s.mul(s.load(&self.sum[at(v)..]), rescale);
            s.store(&mut self.rescale[at(v)..], rescale);
            s.store(&mut self.max[at(v)..], max[v]);
        }
        for scores in scores.chunks_exact_mut(BLOCK).take(keys) {
            for v in 0..V {
                let score = &mut scores[at(v)..];
                let weight = exp2(s, s.sub(s.load(score), max[v]));
                sum[v] = s.add(sum[v], weight);
                s.store(score, weight);
            }
        }
        for (v, &sum) in sum.iter().enumerate() {
            s.store(&mut self.sum[at(v)..], sum);
        }
    }
}
