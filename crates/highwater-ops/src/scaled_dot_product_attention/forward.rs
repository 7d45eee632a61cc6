//! The forward kernel.

#![expect(unsafe_code, reason = "tasks write disjoint rows of one output")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::ScaledDotProductAttention;
use super::product::{Extent, Left, multiply, transpose};
use super::rows::{BLOCK, Head, Rows, RowsMut, Scratch, padded};
use super::vector::{Simd, Task, Version, dispatch, exp2};
use crate::{Args, Disjoint, KernelError, op_as};
use highwater_graph::Op;
use std::f32::consts::LN_2;
use std::f64::consts::LOG2_E;
use std::ops::Range;

/// Elements of scratch memory per thread.
pub(super) fn scratch(width: usize) -> usize {
    4 * BLOCK * padded(width) + BLOCK * BLOCK + 3 * BLOCK
}

/// Fills `o` and `lse`, one task per block of queries.
pub(super) fn kernel(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    run(op, args, Version::Best)
}

/// The kernel on an instruction set.
pub(super) fn run(op: &dyn Op, args: &mut Args<'_>, version: Version) -> Result<(), KernelError> {
    let op = op_as::<ScaledDotProductAttention>(op)?;
    let &[batch, heads, queries, width] = args.inputs[0].dims() else {
        return Err(KernelError::WrongOp { op: op.name() });
    };
    let (out, lse) = args.outputs.split_at_mut(1);
    let layout = out[0].layout();
    let storage = Disjoint::new(out[0].storage_mut()?);
    let forward = Forward {
        q: Rows::new(&args.inputs[0])?,
        k: Rows::new(&args.inputs[1])?,
        v: Rows::new(&args.inputs[2])?,
        o: RowsMut::new(&storage, layout),
        lse: Disjoint::new(lse[0].slice_mut()?),
        heads,
        queries,
        keys: args.inputs[1].dims()[2],
        width,
        version,
        causal: op.causal,
        scale: (op.scale * LOG2_E) as f32,
    };
    let len = scratch(width);
    let scratch = Disjoint::new(bytemuck::cast_slice_mut(args.scratch));
    let blocks = queries.div_ceil(BLOCK);
    args.pool
        .for_each_on_thread(batch * heads * blocks, |task, thread| {
            let (head, start) = (task / blocks, task % blocks * BLOCK);
            // SAFETY: each thread has its own part.
            let scratch = unsafe { scratch.part(thread * len, len) };
            dispatch(
                forward.version,
                Block {
                    of: &forward,
                    head: Head(head / heads, head % heads),
                    rows: start..queries.min(start + BLOCK),
                    scratch: Scratch(scratch),
                },
            );
        });
    Ok(())
}

struct Forward<'a> {
    q: Rows<'a>,
    k: Rows<'a>,
    v: Rows<'a>,
    o: RowsMut<'a>,
    lse: Disjoint<'a, f32>,
    heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    version: Version,
    causal: bool,
    /// Makes scores exponents of 2.
    scale: f32,
}

/// A block of queries of one head.
struct Block<'a> {
    of: &'a Forward<'a>,
    head: Head,
    rows: Range<usize>,
    scratch: Scratch<'a>,
}

/// Running statistics of the scores of each query.
struct Softmax<'a> {
    max: &'a mut [f32],
    sum: &'a mut [f32],
    /// What sums made under the former maximum must be multiplied by.
    rescale: &'a mut [f32],
}

impl Task for Block<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (of, head, rows) = (self.of, self.head, self.rows.clone());
        let (n, columns, wide) = (rows.len(), padded(rows.len()), padded(of.width));
        let queries = self.scratch.take(BLOCK * wide);
        let keys = self.scratch.take(BLOCK * wide);
        let values = self.scratch.take(BLOCK * wide);
        let out = self.scratch.take(BLOCK * wide);
        let scores = self.scratch.take(BLOCK * BLOCK);
        let mut softmax = Softmax {
            max: self.scratch.take(BLOCK),
            sum: self.scratch.take(BLOCK),
            rescale: self.scratch.take(BLOCK),
        };
        of.q.pack(head, rows.clone(), out);
        transpose(s, (out, wide), queries, BLOCK, (columns, wide), of.scale);
        out.fill(0.0);
        softmax.max.fill(f32::NEG_INFINITY);
        softmax.sum.fill(0.0);
        let end = if of.causal { rows.end } else { of.keys };
        for start in (0..end).step_by(BLOCK) {
            let block = start..end.min(start + BLOCK);
            of.k.pack(head, block.clone(), keys);
            of.v.pack(head, block.clone(), values);
            let depth = of.width;
            // Scores lie transposed, queries side by side, so that nothing is summed across lanes.
            let left = Left {
                data: keys,
                row: wide,
                step: 1,
            };
            let extent = Extent {
                rows: block.len(),
                depth,
                columns,
            };
            multiply(s, left, (queries, BLOCK), scores, BLOCK, extent, false);
            if of.causal && block.end > rows.start {
                mask(scores, &rows, &block);
            }
            softmax.update(s, scores, block.len(), columns);
            scale_rows(s, out, &softmax.rescale[..n], wide);
            let left = Left {
                data: scores,
                row: 1,
                step: BLOCK,
            };
            let extent = Extent {
                rows: n,
                depth: block.len(),
                columns: wide,
            };
            multiply(s, left, (values, wide), out, wide, extent, true);
        }
        self.finish(out, &softmax);
    }
}

impl Block<'_> {
    /// Divides by the sums and writes the results.
    #[inline(always)]
    fn finish(&self, out: &mut [f32], softmax: &Softmax<'_>) {
        let (of, Head(b, h)) = (self.of, self.head);
        let n = self.rows.len();
        let wide = padded(of.width);
        for i in 0..n {
            // No keys: the empty sum, not 0 / 0.
            let factor = if of.keys == 0 {
                0.0
            } else {
                1.0 / softmax.sum[i]
            };
            for out in &mut out[i * wide..][..wide] {
                *out *= factor;
            }
        }
        let start = (b * of.heads + h) * of.queries + self.rows.start;
        // SAFETY: this block's rows are this task's.
        let lse = unsafe {
            of.o.unpack(self.head, self.rows.clone(), out);
            of.lse.part(start, n)
        };
        for (i, lse) in lse.iter_mut().enumerate() {
            *lse = softmax.max[i] * LN_2 + softmax.sum[i].ln();
        }
    }
}

/// Hides from each query the keys after it.
pub(super) fn mask(scores: &mut [f32], queries: &Range<usize>, keys: &Range<usize>) {
    for (key, scores) in keys.clone().zip(scores.chunks_exact_mut(BLOCK)) {
        let hidden = key.saturating_sub(queries.start).min(BLOCK);
        scores[..hidden].fill(f32::NEG_INFINITY);
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
