//! The fast kernel: whole numbers that sort as the elements do, each with the element's index behind it.
//!
//! With its index behind it every number is another one, so that a sort that is not stable gives one answer,
//! equal elements in their order, and comparisons are of whole numbers, NaN included. Keys are made by
//! vectors. A task is lines of 8,192 elements or more; a thread has scratch memory for the keys of one line,
//! and the tensor itself is not copied. `topk` selects first and sorts what is left. They run at 6 and 10% of
//! the pace of a copy: comparisons, not memory (with AVX2, BENCHMARKS.md).

#![expect(unsafe_code, reason = "tasks write disjoint lines of two outputs")]

use super::Ordering;
use crate::kernels::blocks::{BLOCK, Reader};
use crate::kernels::float::Float;
use crate::kernels::lines::Lines;
use crate::kernels::simd::multiversion;
use crate::kernels::whole::Whole;
use crate::{Args, Disjoint, Element, Kernel, KernelError, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Elements that one task sorts at least.
const TASK: usize = 1 << 13;

/// Each thread keeps the numbers of one line in scratch memory.
pub(super) struct OrderKernel<O, T>(pub(super) PhantomData<fn() -> (O, T)>);

/// An element, which a key stands for.
pub(super) trait Ordered: Element {
    /// A number whose order is that of the elements, with an index in its low 32 bits.
    type Key: bytemuck::Pod + Ord + Send;

    /// The elements as numbers that ascend in the order that is wanted, with their indices behind them.
    fn make_keys(x: &[Self], first: usize, descending: bool, keys: &mut [Self::Key]);

    /// The index.
    fn index(key: Self::Key) -> usize;
}

impl<T: Float> Ordered for T {
    type Key = u64;

    fn make_keys(x: &[Self], first: usize, descending: bool, keys: &mut [u64]) {
        let mut wide = [0.0; BLOCK];
        let wide = &mut wide[..x.len()];
        T::widen(x, wide);
        make_keys(wide, first as u64, descending, keys);
    }

    fn index(key: u64) -> usize {
        key as u32 as usize
    }
}

macro_rules! ordered_whole {
    ($($type:ty),*) => {$(
        impl Ordered for $type {
            type Key = u128;

            fn make_keys(x: &[Self], first: usize, descending: bool, keys: &mut [u128]) {
                let turn = if descending { u64::MAX } else { 0 } ^ (1 << 63);
                for (i, (key, x)) in keys.iter_mut().zip(x).enumerate() {
                    *key = u128::from(x.wide() as u64 ^ turn) << 32 | (first + i) as u128;
                }
            }

            fn index(key: u128) -> usize {
                key as u32 as usize
            }
        }
    )*};
}
ordered_whole!(i64, u8);

impl<O: Ordering, T: Ordered> Kernel for OrderKernel<O, T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let dim = op.downcast().map_or(0, |op: &O| op.dim());
        let extent = Lines::new(inputs[0].shape(), dim).extent;
        (threads * extent * size_of::<T::Key>()) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: O = *op_as(op)?;
        let input = &args.inputs[0];
        let lines = Lines::new(input.spec().shape(), op.dim());
        let (extent, inner) = (lines.extent, lines.inner);
        // Lines as rows.
        let rank = input.dims().len();
        let order = (0..rank)
            .filter(|&i| i != op.dim())
            .chain((rank > 0).then(|| op.dim()));
        let layout = input
            .layout()
            .permute(&order.collect::<smallvec::SmallVec<[usize; 8]>>());
        let layout = layout.ok_or(KernelError::WrongOp { op: op.name() })?;
        let reader = Reader::<T>::through(input, &layout)?;
        let [values, places] = &mut *args.outputs else {
            return Ok(());
        };
        let values = Disjoint::new(values.slice_mut::<T>()?);
        let places = Disjoint::new(places.slice_mut::<i64>()?);
        let scratch = Disjoint::new(bytemuck::cast_slice_mut::<u8, T::Key>(args.scratch));
        let (taken, count) = (op.taken(extent), lines.outer * inner);
        if taken == 0 {
            return Ok(());
        }
        let each = TASK.div_ceil(extent);
        args.pool
            .for_each_on_thread(count.div_ceil(each), |task, thread| {
                // SAFETY: a thread works on one line at a time, and has this part to itself.
                let keys = unsafe { scratch.part(thread * extent, extent) };
                for line in task * each..count.min((task + 1) * each) {
                    fill(&reader, line * extent, op.descending(), keys);
                    if taken < extent {
                        keys.select_nth_unstable(taken - 1);
                    }
                    let keys = &mut keys[..taken];
                    keys.sort_unstable();
                    let first = line / inner * taken * inner + line % inner;
                    for (i, &key) in keys.iter().enumerate() {
                        let (from, to) = (T::index(key), first + i * inner);
                        // SAFETY: every element of every line is written once.
                        let (value, place) = unsafe { (values.part(to, 1), places.part(to, 1)) };
                        reader.copy(line * extent + from, value);
                        place[0] = from as i64;
                    }
                }
            });
        Ok(())
    }
}

/// Makes the numbers of a line.
fn fill<T: Ordered>(reader: &Reader<'_, T>, start: usize, descending: bool, keys: &mut [T::Key]) {
    let mut buffer = [T::zeroed(); BLOCK];
    for (i, keys) in keys.chunks_mut(BLOCK).enumerate() {
        let at = i * BLOCK;
        let x = reader.piece(start + at, &mut buffer[..keys.len()]);
        T::make_keys(x, at, descending, keys);
    }
}

multiversion! {
    /// [`Ordered::make_keys`].
    fn make_keys[I](x: &[f32], first: u64, descending: bool, keys: &mut [u64]) {
        let turn = if descending { u32::MAX } else { 0 };
        for (i, (key, &x)) in keys.iter_mut().zip(x).enumerate() {
            // Minus 0 is as large as 0.
            let bits = (x + 0.0).to_bits();
            let turned = bits ^ ((bits as i32 >> 31) as u32 | 0x8000_0000);
            let ascending = if x.is_nan() { u32::MAX } else { turned };
            *key = u64::from(ascending ^ turn) << 32 | (first + i as u64);
        }
    }
}
