//! The backward kernel.
//!
//! Gradients of keys and values are summed over blocks of queries, those of queries over blocks of
//! keys, each in ascending order, block product by block product. So it is one and the same sum
//! whether one task does a whole head or, where there are too few heads for the threads, one task
//! a block of keys and later another a block of queries.

#![expect(unsafe_code, reason = "tasks write disjoint rows of the outputs")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::ScaledDotProductAttentionBackward;
use super::forward::mask;
use super::product::{Extent, Left, multiply, transpose};
use super::rows::{BLOCK, Head, Rows, RowsMut, Scratch, padded};
use super::vector::{Simd, Task, Version, dispatch, exp2};
use crate::{Args, Disjoint, KernelError, Pool, op_as};
use highwater_graph::{Layout, Op};
use smallvec::SmallVec;
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// Elements of scratch memory per thread.
pub(super) fn scratch(width: usize) -> usize {
    8 * BLOCK * padded(width) + 2 * BLOCK * BLOCK + 2 * BLOCK
}

/// Whether each head is done twice, for keys and for queries, because whole heads would leave
/// threads idle. Costs seven products instead of five.
pub(super) fn splits(heads: usize, threads: usize) -> bool {
    heads.div_ceil(threads) * threads * 5 > heads * 7
}

/// Fills the gradients of `q`, `k` and `v`.
pub(super) fn kernel(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    run(op, args, Version::Best)
}

/// The kernel on an instruction set.
pub(super) fn run(op: &dyn Op, args: &mut Args<'_>, version: Version) -> Result<(), KernelError> {
    let op = op_as::<ScaledDotProductAttentionBackward>(op)?;
    let inputs = &*args.inputs;
    let &[batch, heads, queries, width] = inputs[0].dims() else {
        return Err(KernelError::WrongOp { op: op.name() });
    };
    let layouts: [Layout; 3] = std::array::from_fn(|i| match &op.packed {
        Some(packed) => packed.layout(i, inputs[i].layout().shape()),
        None => args.outputs[i].layout().clone(),
    });
    let mut storages: SmallVec<[Disjoint<'_, f32>; 3]> = SmallVec::new();
    for output in args.outputs.iter_mut() {
        storages.push(Disjoint::new(output.storage_mut()?));
    }
    let target = |i: usize| RowsMut::new(&storages[i.min(storages.len() - 1)], &layouts[i]);
    let optional = |present: bool, i: usize| present.then(|| Rows::new(&inputs[i])).transpose();
    let backward = Backward {
        q: Rows::new(&inputs[0])?,
        k: Rows::new(&inputs[1])?,
        v: Rows::new(&inputs[2])?,
        o: Rows::new(&inputs[3])?,
        lse: Rows::new(&inputs[4])?,
        grad: optional(op.output_grad, 5)?,
        lse_grad: optional(op.lse_grad, 5 + usize::from(op.output_grad))?,
        dq: target(0),
        dk: target(1),
        dv: target(2),
        heads,
        queries,
        keys: inputs[1].dims()[2],
        width,
        version,
        causal: op.causal,
        scale: op.scale as f32,
    };
    let scratch = Disjoint::new(bytemuck::cast_slice_mut(args.scratch));
    if splits(batch * heads, args.pool.threads()) {
        backward.pass(args.pool, &scratch, batch, (false, true));
        backward.pass(args.pool, &scratch, batch, (true, false));
    } else {
        backward.pass(args.pool, &scratch, batch, (true, true));
    }
    Ok(())
}

struct Backward<'a> {
    q: Rows<'a>,
    k: Rows<'a>,
    v: Rows<'a>,
    o: Rows<'a>,
    lse: Rows<'a>,
    grad: Option<Rows<'a>>,
    lse_grad: Option<Rows<'a>>,
    dq: RowsMut<'a>,
    dk: RowsMut<'a>,
    dv: RowsMut<'a>,
    heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    version: Version,
    causal: bool,
    scale: f32,
}

impl Backward<'_> {
    /// Computes the gradients of the queries, of the keys and values, or of all.
    fn pass(
        &self,
        pool: &Pool,
        scratch: &Disjoint<'_, f32>,
        batch: usize,
        (for_queries, for_keys): (bool, bool),
    ) {
        let parts = match (for_queries, for_keys) {
            (true, true) => 1,
            (true, false) => self.queries.div_ceil(BLOCK),
            _ => self.keys.div_ceil(BLOCK),
        };
        let len = self::scratch(self.width);
        pool.for_each_on_thread(batch * self.heads * parts, |task, thread| {
            let (head, start) = (task / parts, task % parts * BLOCK);
            let part = |whole: bool, n: usize| {
                if whole {
                    0..n
                } else {
                    start..n.min(start + BLOCK)
                }
            };
            // SAFETY: each thread has its own part.
            let scratch = unsafe { scratch.part(thread * len, len) };
            dispatch(
                self.version,
                Part {
                    of: self,
                    head: Head(head / self.heads, head % self.heads),
                    queries: part(for_keys, self.queries),
                    keys: part(for_queries, self.keys),
                    for_queries,
                    for_keys,
                    memory: Memory::new(scratch, padded(self.width)),
                },
            );
        });
    }
}

/// Some queries and some keys of one head; one of both may be all.
struct Part<'a> {
    of: &'a Backward<'a>,
    head: Head,
    queries: Range<usize>,
    keys: Range<usize>,
    for_queries: bool,
    for_keys: bool,
    memory: Memory<'a>,
}

/// Blocks of dense rows; those named `_t` are transposed, queries side by side.
struct Memory<'a> {
    queries: &'a mut [f32],
    queries_t: &'a mut [f32],
    grad: &'a mut [f32],
    grad_t: &'a mut [f32],
    keys: &'a mut [f32],
    values: &'a mut [f32],
    dq: &'a mut [f32],
    /// Whatever is needed for a moment.
    rows: &'a mut [f32],
    /// Scores, then weights: a row for each key.
    weights: &'a mut [f32],
    /// Gradients of the weights, then of the scores.
    grads: &'a mut [f32],
    /// Of each query, in exponents of 2.
    lse: &'a mut [f32],
    /// What is taken from the gradients of the weights.
    delta: &'a mut [f32],
}

impl<'a> Memory<'a> {
    fn new(scratch: &'a mut [f32], wide: usize) -> Self {
        let mut scratch = Scratch(scratch);
        let rows = BLOCK * wide;
        Self {
            queries: scratch.take(rows),
            queries_t: scratch.take(rows),
            grad: scratch.take(rows),
            grad_t: scratch.take(rows),
            keys: scratch.take(rows),
            values: scratch.take(rows),
            dq: scratch.take(rows),
            rows: scratch.take(rows),
            weights: scratch.take(BLOCK * BLOCK),
            grads: scratch.take(BLOCK * BLOCK),
            lse: scratch.take(BLOCK),
            delta: scratch.take(BLOCK),
        }
    }
}

impl Task for Part<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (of, head) = (self.of, self.head);
        if self.for_keys {
            for target in [&of.dk, &of.dv] {
                // SAFETY: these keys are this task's.
                unsafe { target.each_row(head, self.keys.clone(), |_, _, row| row.fill(0.0)) }
            }
        }
        // Queries before the first key see none of them.
        let first = if of.causal { self.keys.start } else { 0 };
        for start in (self.queries.start.max(first)..self.queries.end).step_by(BLOCK) {
            let queries = start..self.queries.end.min(start + BLOCK);
            self.load_queries(s, &queries);
            self.memory.dq.fill(0.0);
            let end = if of.causal {
                queries.end.min(self.keys.end)
            } else {
                self.keys.end
            };
            for start in (self.keys.start..end).step_by(BLOCK) {
                self.tile(s, &queries, &(start..end.min(start + BLOCK)));
            }
            if self.for_queries {
                // SAFETY: these queries are this task's.
                unsafe { of.dq.unpack(head, queries, self.memory.dq) }
            }
        }
    }
}

impl Part<'_> {
    /// Packs a block of queries and what belongs to it.
    #[inline(always)]
    fn load_queries<S: Simd>(&mut self, s: S, queries: &Range<usize>) {
        let (of, head, memory) = (self.of, self.head, &mut self.memory);
        let (columns, wide) = (padded(queries.len()), padded(of.width));
        let size = (columns, wide);
        of.q.pack(head, queries.clone(), memory.queries);
        let from = (&*memory.queries, wide);
        transpose(s, from, memory.queries_t, BLOCK, size, of.scale * LOG2_E);
        match &of.grad {
            Some(grad) => grad.pack(head, queries.clone(), memory.grad),
            None => memory.grad.fill(0.0),
        }
        let from = (&*memory.grad, wide);
        transpose(s, from, memory.grad_t, BLOCK, size, 1.0);
        of.o.pack(head, queries.clone(), memory.rows);
        memory.lse.fill(0.0);
        memory.delta.fill(0.0);
        for (i, t) in queries.clone().enumerate() {
            let row = i * wide..(i + 1) * wide;
            let lse_grad = of.lse_grad.as_ref().map_or(0.0, |grad| grad.first(head, t));
            memory.delta[i] = dot(s, &memory.grad[row.clone()], &memory.rows[row]) - lse_grad;
            memory.lse[i] = of.lse.first(head, t) * LOG2_E;
        }
    }

    /// Adds what a block of queries and a block of keys say to each other's gradients.
    #[inline(always)]
    fn tile<S: Simd>(&mut self, s: S, queries: &Range<usize>, keys: &Range<usize>) {
        let (of, head, memory) = (self.of, self.head, &mut self.memory);
        let (n, wide) = (queries.len(), padded(of.width));
        of.k.pack(head, keys.clone(), memory.keys);
        of.v.pack(head, keys.clone(), memory.values);
        let extent = Extent {
            rows: keys.len(),
            depth: of.width,
            columns: padded(n),
        };
        for (rows, right, to) in [
            (&*memory.keys, &*memory.queries_t, &mut *memory.weights),
            (&*memory.values, &*memory.grad_t, &mut *memory.grads),
        ] {
            let left = Left {
                data: rows,
                row: wide,
                step: 1,
            };
            multiply(s, left, (right, BLOCK), to, BLOCK, extent, false);
        }
        if of.causal && keys.end > queries.start {
            mask(memory.weights, queries, keys);
        }
        memory.weigh(s, keys.len(), padded(n), of.scale);
        let extent = Extent {
            rows: keys.len(),
            depth: n,
            columns: wide,
        };
        for (target, left, right) in [
            (&of.dv, &*memory.weights, &*memory.grad),
            (&of.dk, &*memory.grads, &*memory.queries),
        ] {
            if !self.for_keys {
                break;
            }
            let left = Left {
                data: left,
                row: BLOCK,
                step: 1,
            };
            // SAFETY: these keys are this task's.
            unsafe {
                target.pack(head, keys.clone(), memory.rows);
                multiply(s, left, (right, wide), memory.rows, wide, extent, true);
                target.unpack(head, keys.clone(), memory.rows);
            }
        }
        if self.for_queries {
            let left = Left {
                data: memory.grads,
                row: 1,
                step: BLOCK,
            };
            let extent = Extent {
                rows: n,
                depth: keys.len(),
                columns: wide,
            };
            multiply(s, left, (memory.keys, wide), memory.dq, wide, extent, true);
        }
    }
}

impl Memory<'_> {
    /// Makes weights of the scores, and gradients of the scores of those of the weights.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S, keys: usize, columns: usize, scale: f32) {
        let scale = s.splat(scale);
        let rows = self.weights.chunks_exact_mut(BLOCK);
        for (weights, grads) in rows.zip(self.grads.chunks_exact_mut(BLOCK)).take(keys) {
            for column in (0..columns).step_by(S::LANES) {
                let (weight, grad) = (&mut weights[column..], &mut grads[column..]);
                let p = exp2(s, s.sub(s.load(weight), s.load(&self.lse[column..])));
                let above = s.sub(s.load(grad), s.load(&self.delta[column..]));
                s.store(weight, p);
                s.store(grad, s.mul(p, s.mul(above, scale)));
            }
        }
    }
}

/// The sum of the products of two rows, a multiple of 16 long: sixteen sums in parallel, then
/// those in order.
#[inline(always)]
fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    for (a, b) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        for lane in (0..16).step_by(S::LANES) {
            let (a, b, sums) = (&a[lane..], &b[lane..], &mut sums[lane..]);
            s.store(sums, s.fma(s.load(a), s.load(b), s.load(sums)));
        }
    }
    sums.iter().sum()
}
