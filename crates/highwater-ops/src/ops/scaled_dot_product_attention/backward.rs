//! The backward kernel.
//!
//! Gradients of keys and values are summed over blocks of queries, those of queries over blocks of
//! keys, each in ascending order, block product by block product. So it is one and the same sum
//! whether one task does a whole head or, where there are too few heads for the threads, one task
//! a block of keys and later another a block of queries.
//! Blocks are those of `forward.rs`; probabilities are made again from the scores and `lse`. Pairs of `bf16`
//! make the scores and the gradients of the weights; what is summed from those two stays in `f32`, as nothing of
//! it is rounded so. Where outputs are narrow and several groups of queries add to the same keys, the sums are kept
//! in scratch memory until they are whole, and rounded once.
//!
//! Pairs took it from 159 to 173 GFLOP/s at 4 x 12 x 512 x 64, but from 131 to 103 where one head is all
//! there is, as each block of keys then packs all queries again, in two forms (two threads, BENCHMARKS.md).

#![expect(unsafe_code, reason = "tasks write disjoint rows of the outputs")]
#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

mod blocks;

use super::documents::Documents;
use super::factors::{Factors, in_pairs, wide};
use super::rows::{BLOCK, Head, Rows, RowsMut, Scratch};
use super::sight::{Fresh, Seen, Sight};
use super::{ScaledDotProductAttentionBackward, splits};
use crate::kernels::float::{Float, is_f32};
use crate::kernels::gemm::tile::{Pairs, Singles};
use crate::kernels::vector::{Simd, Task, Version, dispatch};
use crate::{Args, Disjoint, Kernel, KernelError, Pool, op_as};
use blocks::{Block, Tile};
use half::bf16;
use highwater_graph::{DType, Layout, Op, Shape, Spec};
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
fn scratch<T: Float>(q: &Shape) -> usize {
    let rows = BLOCK * wide::<T>(q[3]);
    2 * rows
        + widened::<T>() * wide::<T>(q[3])
        + 2 * BLOCK * BLOCK
        + group(q) * (5 * rows + 2 * BLOCK)
}

/// Keys that a task may hold as `f32` beside what they are.
fn widened<T: Float>() -> usize {
    if T::is(DType::BF16) { BLOCK } else { 0 }
}

/// Whether a task keeps the sums of its keys' gradients until they are whole: where several groups of
/// queries add to them and the outputs are narrower. Else they are stored after each group, and loaded again.
fn keeps<T: Float>(q: &Shape, k: &Shape) -> bool {
    let groups = q[2].div_ceil(BLOCK * group(q)) * (q[1] / k[1].max(1));
    !is_f32::<T>() && groups >= 2
}

/// Of how many keys there are such sums.
fn summed<T: Float>(q: &Shape, k: &Shape, threads: usize) -> usize {
    if keeps::<T>(q, k) && !splits(k[0] * k[1], threads) {
        k[2].next_multiple_of(BLOCK)
    } else {
        BLOCK
    }
}

/// Fills the gradients of `q`, `k` and `v`.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let (q, k) = (inputs[0].shape(), inputs[1].shape());
        let sums = 2 * summed::<T>(q, k, threads) * wide::<T>(q[3]);
        let len = scratch::<T>(q) + sums;
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
    if in_pairs::<T>(version, op.scale) {
        run_with::<bf16, Pairs>(op, args, version)
    } else {
        run_with::<T, Singles>(op, args, version)
    }
}

/// The same with words of a kind.
pub(super) fn run_with<T: Float, W: Factors<T>>(
    op: &ScaledDotProductAttentionBackward,
    args: &mut Args<'_>,
    version: Version,
) -> Result<(), KernelError> {
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
    let (query_scale, score_scale) = W::split(op.scale as f32 * LOG2_E);
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
        keeps: keeps::<T>(q, k),
        summed: summed::<T>(q, k, args.pool.threads()),
        version,
        sight: op.sight(),
        documents,
        scale: op.scale as f32,
        query_scale,
        score_scale,
    };
    let scratch: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
    if splits(batch * shared, args.pool.threads()) {
        backward.pass::<W>(args.pool, scratch, batch, (false, true));
        backward.pass::<W>(args.pool, scratch, batch, (true, false));
    } else {
        backward.pass::<W>(args.pool, scratch, batch, (true, true));
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
    /// See [`keeps`].
    keeps: bool,
    /// See [`summed`].
    summed: usize,
    version: Version,
    sight: Sight,
    documents: Option<Documents<'a>>,
    scale: f32,
    /// Both together make scores exponents of 2.
    query_scale: Option<f32>,
    score_scale: f32,
}

impl<T: Float> Backward<'_, T> {
    /// Computes the gradients of the queries, of the keys and values, or of all.
    fn pass<W: Factors<T>>(
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
                Part::<T, W> {
                    words: PhantomData,
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
struct Part<'a, T, W> {
    words: PhantomData<W>,
    of: &'a Backward<'a, T>,
    batch: usize,
    heads: Range<usize>,
    queries: Range<usize>,
    keys: Range<usize>,
    for_queries: bool,
    for_keys: bool,
    scratch: Scratch<'a>,
}
impl<T: Float, W: Factors<T>> Task for Part<'_, T, W> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (of, wide) = (self.of, W::padded(self.of.width));
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
        let mut tile = Tile::new(&mut self.scratch, wide, [widened::<T>(), of.summed]);
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
        if self.for_keys && of.keeps {
            for start in self.keys.clone().step_by(BLOCK) {
                tile.rows = start..self.keys.end.min(start + BLOCK);
                // SAFETY: these keys are this task's.
                unsafe { tile.store(&self) }
            }
        }
    }
}

impl<T: Float, W: Factors<T>> Part<'_, T, W> {
    /// Which keys queries see.
    fn sight(&self) -> Seen<'_> {
        Seen::new(self.of.sight, self.of.documents, self.batch)
    }

    /// The head of keys and values.
    fn shared(&self) -> Head {
        Head(self.batch, self.heads.start / self.of.sharing)
    }

    /// Asks for keys and values.
    #[inline(always)]
    fn fetch(&self, rows: Range<usize>) {
        self.of.k.fetch(self.shared(), rows.clone());
        self.of.v.fetch(self.shared(), rows);
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
        let (of, head) = (self.of, Head(self.batch, head));
        let (queries, wide) = (self.queries.end, W::padded(of.width));
        let all = start..queries.min(start + blocks.len() * BLOCK);
        for rows in [Some(&of.q), Some(&of.o), of.grad.as_ref()] {
            rows.inspect(|rows| rows.fetch(head, all.clone()));
        }
        for (i, block) in blocks.iter_mut().enumerate() {
            let start = queries.min(start + i * BLOCK);
            block.rows = start..queries.min(start + BLOCK);
            block.load::<S, T, W>(s, of, head);
        }
        let sight = self.sight();
        let seen = sight.keys(&all, self.keys.end);
        let seen = seen.start.max(self.keys.start)..seen.end.min(self.keys.end);
        let from = match fresh {
            Fresh::All if self.for_keys => self.keys.start,
            _ => seen.start / BLOCK * BLOCK,
        };
        self.fetch(from..seen.end.min(from + BLOCK));
        for key in (from..seen.end).step_by(BLOCK) {
            tile.rows = key..seen.end.min(key + BLOCK);
            let fresh = match fresh {
                Fresh::All => true,
                Fresh::From(start) => of.sight.causal && start <= key,
                Fresh::None => false,
            };
            // SAFETY: where they are written, these keys are this task's.
            unsafe { tile.load(self, fresh) }
            self.fetch(tile.rows.end..seen.end.min(tile.rows.end + BLOCK));
            for block in blocks.iter_mut() {
                if sight.meets(&block.rows, &tile.rows) {
                    tile.meet(s, self, block);
                }
            }
            if self.for_keys && !of.keeps {
                // SAFETY: these keys are this task's.
                unsafe { tile.store(self) }
            }
        }
        if self.for_queries {
            for block in blocks {
                // SAFETY: these queries are this task's.
                unsafe { of.dq.unpack(head, block.rows.clone(), (block.dq, wide)) }
            }
        }
    }
}
