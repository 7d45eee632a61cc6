//! The backward kernel.
//!
//! Gradients of keys and values are summed over blocks of queries, those of queries over blocks of
//! keys, each in ascending order, block product by block product. So it is one and the same sum
//! whether one task does a whole head or, where there are too few heads for the threads, one task
//! a block of keys and later another a block of queries.
//! Blocks are those of `forward.rs`; probabilities are made again from the scores and `lse`.

#![expect(unsafe_code, reason = "tasks write disjoint rows of the outputs")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use super::documents::Documents;
use super::product::{Extent, Left, dot, multiply, transpose};
use super::rows::{BLOCK, Head, Rows, RowsMut, Scratch, padded};
use super::sight::{Fresh, Seen, Sight};
use super::{ScaledDotProductAttentionBackward, splits};
use crate::float::{Float, is_f32};
use crate::vector::{Simd, Task, Version, dispatch, exp2};
use crate::{Args, Disjoint, Kernel, KernelError, Pool, op_as};
use highwater_graph::{Layout, Op, Shape, Spec};
use smallvec::SmallVec;
use std::f32::consts::LOG2_E;
use std::marker::PhantomData;
use std::ops::Range;

/// The most blocks of queries that share the packing of keys and values.
const GROUP: usize = 4;

fn group(q: &Shape) -> usize {
    q[2].div_ceil(BLOCK).clamp(1, GROUP)
}

/// Elements of scratch memory per thread.
fn scratch(q: &Shape) -> usize {
    let rows = BLOCK * padded(q[3]);
    4 * rows + 2 * BLOCK * BLOCK + group(q) * (5 * rows + 2 * BLOCK)
}

/// Elements per thread for sums of gradients of keys and values that several groups of queries add to,
/// where the outputs are narrower than the sums.
fn sums<T: Float>(q: &Shape, k: &Shape, threads: usize) -> usize {
    let groups = q[2].div_ceil(BLOCK * group(q)) * (q[1] / k[1].max(1));
    if is_f32::<T>() || groups < 2 {
        return 0;
    }
    let keys = if splits(k[0] * k[1], threads) {
        BLOCK
    } else {
        k[2].next_multiple_of(BLOCK)
    };
    2 * keys * padded(q[3])
}

/// Fills the gradients of `q`, `k` and `v`.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let (q, k) = (inputs[0].shape(), inputs[1].shape());
        let len = scratch(q) + sums::<T>(q, k, threads);
        (threads * len * size_of::<f32>()) as u64
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
    let op = op_as::<ScaledDotProductAttentionBackward>(op)?;
    let inputs = &*args.inputs;
    let &[batch, heads, queries, width] = inputs[0].dims() else {
        return Err(KernelError::WrongOp { op: op.name() });
    };
    let (q, k) = (inputs[0].spec().shape(), inputs[1].spec().shape());
    let shared = k[1];
    let layouts: [Layout; 3] = std::array::from_fn(|i| match &op.packed {
        Some(packed) => packed.layout(i, inputs[i].layout().shape()),
        None => args.outputs[i].layout().clone(),
    });
    let mut storages: SmallVec<[Disjoint<'_, T>; 3]> = SmallVec::new();
    for output in args.outputs.iter_mut() {
        storages.push(Disjoint::new(output.storage_mut()?));
    }
    let target = |i: usize| RowsMut::new(&storages[i.min(storages.len() - 1)], &layouts[i]);
    let documents = (op.documents.then(|| Documents::new(&inputs[3], queries))).transpose()?;
    let rest = &inputs[3 + usize::from(op.documents)..];
    let lse_grad = 2 + usize::from(op.output_grad);
    let backward = Backward {
        q: Rows::new(&inputs[0])?,
        k: Rows::new(&inputs[1])?,
        v: Rows::new(&inputs[2])?,
        o: Rows::new(&rest[0])?,
        lse: Rows::new(&rest[1])?,
        grad: (op.output_grad.then(|| Rows::new(&rest[2]))).transpose()?,
        lse_grad: (op.lse_grad.then(|| Rows::new(&rest[lse_grad]))).transpose()?,
        dq: target(0),
        dk: target(1),
        dv: target(2),
        shared,
        sharing: heads.checked_div(shared).unwrap_or(1),
        queries,
        keys: k[2],
        width,
        group: group(q),
        sums: sums::<T>(q, k, args.pool.threads()),
        version,
        sight: op.sight(),
        documents,
        scale: op.scale as f32,
    };
    let scratch: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
    if splits(batch * shared, args.pool.threads()) {
        backward.pass(args.pool, scratch, batch, (false, true));
        backward.pass(args.pool, scratch, batch, (true, false));
    } else {
        backward.pass(args.pool, scratch, batch, (true, true));
    }
    Ok(())
}

struct Backward<'a, T> {
    q: Rows<'a, T>,
    k: Rows<'a, T>,
    v: Rows<'a, T>,
    o: Rows<'a, T>,
    lse: Rows<'a, f32>,
    grad: Option<Rows<'a, T>>,
    lse_grad: Option<Rows<'a, f32>>,
    dq: RowsMut<'a, T>,
    dk: RowsMut<'a, T>,
    dv: RowsMut<'a, T>,
    /// Heads of keys and values.
    shared: usize,
    /// Heads of queries that share each of them.
    sharing: usize,
    queries: usize,
    keys: usize,
    width: usize,
    group: usize,
    /// Elements of [`sums`].
    sums: usize,
    version: Version,
    sight: Sight,
    documents: Option<Documents<'a>>,
    scale: f32,
}

impl<T: Float> Backward<'_, T> {
    /// Computes the gradients of the queries, of the keys and values, or of all.
    fn pass(
        &self,
        pool: &Pool,
        scratch: &mut [f32],
        batch: usize,
        (for_queries, for_keys): (bool, bool),
    ) {
        let parts = match (for_queries, for_keys) {
            (true, true) => 1,
            (true, false) => self.queries.div_ceil(BLOCK),
            _ => self.keys.div_ceil(BLOCK),
        };
        let len = scratch.len() / pool.threads();
        let scratch = Disjoint::new(scratch);
        // Heads of queries that share keys go together where gradients of keys are summed.
        let together = if for_keys { self.sharing } else { 1 };
        let heads = self.shared * self.sharing / together;
        pool.for_each_on_thread(batch * heads * parts, |task, thread| {
            let (head, start) = (task / parts, task % parts * BLOCK);
            let (batch, head) = (head / heads, head % heads * together);
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
                    batch,
                    heads: head..head + together,
                    queries: part(for_keys, self.queries),
                    keys: part(for_queries, self.keys),
                    for_queries,
                    for_keys,
                    scratch: Scratch(scratch),
                },
            );
        });
    }
}

/// Some queries of heads that share their keys, and some of these keys; one of both may be all.
struct Part<'a, T> {
    of: &'a Backward<'a, T>,
    batch: usize,
    heads: Range<usize>,
    queries: Range<usize>,
    keys: Range<usize>,
    for_queries: bool,
    for_keys: bool,
    scratch: Scratch<'a>,
}

/// A block of queries: dense rows; those named `_t` are transposed, queries side by side.
struct Block<'a> {
    rows: Range<usize>,
    queries: &'a mut [f32],
    queries_t: &'a mut [f32],
    grad: &'a mut [f32],
    grad_t: &'a mut [f32],
    dq: &'a mut [f32],
    /// In exponents of 2.
    lse: &'a mut [f32],
    /// What is taken from the gradients of the weights.
    delta: &'a mut [f32],
}

/// A block of keys: dense rows.
struct Tile<'a> {
    rows: Range<usize>,
    keys: &'a mut [f32],
    values: &'a mut [f32],
    dk: &'a mut [f32],
    dv: &'a mut [f32],
    /// Scores, then weights: a row for each key.
    weights: &'a mut [f32],
    /// Gradients of the weights, then of the scores.
    grads: &'a mut [f32],
    /// Where [`sums`] are kept: for each block of keys `dk`, then `dv`.
    sums: &'a mut [f32],
}

impl<'a> Block<'a> {
    fn new(scratch: &mut Scratch<'a>, wide: usize) -> Self {
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
    fn new(scratch: &mut Scratch<'a>, wide: usize, sums: usize) -> Self {
        let rows = BLOCK * wide;
        Self {
            rows: 0..0,
            sums: scratch.take(sums),
            keys: scratch.take(rows),
            values: scratch.take(rows),
            dk: scratch.take(rows),
            dv: scratch.take(rows),
            weights: scratch.take(BLOCK * BLOCK),
            grads: scratch.take(BLOCK * BLOCK),
        }
    }
}

impl<T: Float> Task for Part<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (of, wide) = (self.of, padded(self.of.width));
        if self.for_keys && self.queries.is_empty() {
            for target in [&of.dk, &of.dv] {
                // SAFETY: these keys are this task's.
                unsafe {
                    target.each_row(self.shared(), self.keys.clone(), |_, _, row| {
                        row.fill(T::zeroed());
                    });
                }
            }
        }
        let mut tile = Tile::new(&mut self.scratch, wide, of.sums);
        let group = of.group.min(self.queries.len().div_ceil(BLOCK));
        let mut blocks: SmallVec<[Block<'_>; GROUP]> = SmallVec::new();
        blocks.extend((0..group).map(|_| Block::new(&mut self.scratch, wide)));
        let seeing = self.sight().queries(&self.keys, self.queries.end);
        let first = seeing.start.max(self.queries.start);
        for head in self.heads.clone() {
            for start in (first..seeing.end).step_by(BLOCK * group.max(1)) {
                let fresh = match head == self.heads.start {
                    true if start == first => Fresh::All,
                    true => Fresh::From(start),
                    false => Fresh::None,
                };
                self.group(s, &mut blocks, &mut tile, (head, start), fresh);
            }
        }
    }
}

impl<T: Float> Part<'_, T> {
    /// Which keys queries see.
    fn sight(&self) -> Seen<'_> {
        Seen::new(self.of.sight, self.of.documents, self.batch)
    }

    /// The head of keys and values.
    fn shared(&self) -> Head {
        Head(self.batch, self.heads.start / self.of.sharing)
    }

    /// Lets the blocks of queries from `start` on meet the keys.
    #[inline(always)]
    fn group<S: Simd>(
        &self,
        s: S,
        blocks: &mut [Block<'_>],
        tile: &mut Tile<'_>,
        (head, start): (usize, usize),
        fresh: Fresh,
    ) {
        let (of, shared, head) = (self.of, self.shared(), Head(self.batch, head));
        let queries = self.queries.end;
        for (i, block) in blocks.iter_mut().enumerate() {
            let start = queries.min(start + i * BLOCK);
            block.rows = start..queries.min(start + BLOCK);
            block.load(s, of, head);
        }
        let end = blocks.last().map_or(0, |block| block.rows.end);
        let sight = self.sight();
        let seen = sight.keys(&(start..end), self.keys.end);
        let seen = seen.start.max(self.keys.start)..seen.end.min(self.keys.end);
        let from = match fresh {
            Fresh::All if self.for_keys => self.keys.start,
            _ => seen.start / BLOCK * BLOCK,
        };
        for key in (from..seen.end).step_by(BLOCK) {
            tile.rows = key..seen.end.min(key + BLOCK);
            let fresh = match fresh {
                Fresh::All => true,
                Fresh::From(start) => of.sight.causal && start <= key,
                Fresh::None => false,
            };
            // SAFETY: where they are written, these keys are this task's.
            unsafe { tile.load(self, fresh) }
            for block in blocks.iter_mut() {
                if sight.meets(&block.rows, &tile.rows) {
                    tile.meet(s, self, block);
                }
            }
            if self.for_keys {
                // SAFETY: these keys are this task's.
                unsafe {
                    of.dk.unpack(shared, tile.rows.clone(), tile.dk);
                    of.dv.unpack(shared, tile.rows.clone(), tile.dv);
                }
                if of.sums > 0 {
                    let [dk, dv] = tile.kept(key - self.keys.start);
                    dk.0.copy_from_slice(dk.1);
                    dv.0.copy_from_slice(dv.1);
                }
            }
        }
        if self.for_queries {
            for block in blocks {
                // SAFETY: these queries are this task's.
                unsafe { of.dq.unpack(head, block.rows.clone(), block.dq) }
            }
        }
    }
}

impl Block<'_> {
    /// Packs the queries and what belongs to them.
    #[inline(always)]
    fn load<S: Simd>(&mut self, s: S, of: &Backward<'_, impl Float>, head: Head) {
        let wide = padded(of.width);
        let size = (padded(self.rows.len()), wide);
        of.o.pack(head, self.rows.clone(), self.dq);
        of.q.pack(head, self.rows.clone(), self.queries);
        let from = (&*self.queries, wide);
        transpose(s, from, self.queries_t, BLOCK, size, of.scale * LOG2_E);
        match &of.grad {
            Some(grad) => grad.pack(head, self.rows.clone(), self.grad),
            None => self.grad.fill(0.0),
        }
        transpose(s, (self.grad, wide), self.grad_t, BLOCK, size, 1.0);
        self.lse.fill(0.0);
        self.delta.fill(0.0);
        for (i, t) in self.rows.clone().enumerate() {
            let row = i * wide..(i + 1) * wide;
            let lse_grad = of.lse_grad.as_ref().map_or(0.0, |grad| grad.first(head, t));
            self.delta[i] = dot(s, &self.grad[row.clone()], &self.dq[row]) - lse_grad;
            self.lse[i] = of.lse.first(head, t) * LOG2_E;
        }
        self.dq.fill(0.0);
    }
}

impl Tile<'_> {
    /// Packs the keys and values, and their gradients so far: none if these are their `first`
    /// queries.
    ///
    /// # Safety
    /// No other thread may be at the gradients of the same keys, if `of` is for keys.
    unsafe fn load<T: Float>(&mut self, of: &Part<'_, T>, first: bool) {
        let rows = || self.rows.clone();
        let head = of.shared();
        of.of.k.pack(head, rows(), self.keys);
        of.of.v.pack(head, rows(), self.values);
        if first {
            self.dk.fill(0.0);
            self.dv.fill(0.0);
        } else if of.for_keys && of.of.sums > 0 {
            let [dk, dv] = self.kept(self.rows.start - of.keys.start);
            dk.1.copy_from_slice(dk.0);
            dv.1.copy_from_slice(dv.0);
        } else if of.for_keys {
            // SAFETY: the caller's.
            unsafe {
                of.of.dk.pack(head, rows(), self.dk);
                of.of.dv.pack(head, rows(), self.dv);
            }
        }
    }

    /// What is kept of the gradients of the keys from the `first` of the task on, and the gradients.
    fn kept(&mut self, first: usize) -> [(&mut [f32], &mut [f32]); 2] {
        let len = self.dk.len();
        let kept = &mut self.sums[2 * (first / BLOCK) * len..][..2 * len];
        let (dk, dv) = kept.split_at_mut(len);
        [(dk, &mut *self.dk), (dv, &mut *self.dv)]
    }

    /// Adds what these keys and a block of queries say to each other's gradients.
    #[inline(always)]
    fn meet<S: Simd>(&mut self, s: S, part: &Part<'_, impl Float>, block: &mut Block<'_>) {
        let (of, keys, n) = (part.of, self.rows.len(), block.rows.len());
        let (wide, columns) = (padded(of.width), padded(n));
        let extent = Extent {
            rows: keys,
            depth: of.width,
            columns,
        };
        let (left, right) = (Left::rows(self.keys, wide), (&*block.queries_t, BLOCK));
        multiply(s, left, right, self.weights, BLOCK, extent, false);
        let (left, right) = (Left::rows(self.values, wide), (&*block.grad_t, BLOCK));
        multiply(s, left, right, self.grads, BLOCK, extent, false);
        part.sight().mask(self.weights, &block.rows, &self.rows);
        self.weigh(s, block, of.scale);
        if part.for_keys {
            let extent = Extent {
                rows: keys,
                depth: n,
                columns: wide,
            };
            let (left, right) = (Left::rows(self.weights, BLOCK), (&*block.grad, wide));
            multiply(s, left, right, self.dv, wide, extent, true);
            let (left, right) = (Left::rows(self.grads, BLOCK), (&*block.queries, wide));
            multiply(s, left, right, self.dk, wide, extent, true);
        }
        if part.for_queries {
            let extent = Extent {
                rows: n,
                depth: keys,
                columns: wide,
            };
            let left = Left::columns(self.grads, BLOCK);
            multiply(s, left, (self.keys, wide), block.dq, wide, extent, true);
        }
    }

    /// Makes weights of the scores, and gradients of the scores of those of the weights.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S, block: &Block<'_>, scale: f32) {
        let scale = s.splat(scale);
        let columns = padded(block.rows.len());
        let rows = self.weights.chunks_exact_mut(BLOCK);
        let rows = rows.zip(self.grads.chunks_exact_mut(BLOCK));
        for (weights, grads) in rows.take(self.rows.len()) {
            for column in (0..columns).step_by(S::LANES) {
                let (weight, grad) = (&mut weights[column..], &mut grads[column..]);
                let p = exp2(s, s.sub(s.load(weight), s.load(&block.lse[column..])));
                let above = s.sub(s.load(grad), s.load(&block.delta[column..]));
                s.store(weight, p);
                s.store(grad, s.mul(p, s.mul(above, scale)));
            }
        }
    }
}
