//! The fast kernels: elements are fetched piece by piece of the output, and added column by column.
//!
//! `gather`: a task is 16,384 elements of the output. Indices are read 64 at a time and checked as they are
//! read, so that no pass goes over them before; where one stands for all that is behind the dimension, that
//! is copied as a run.
//!
//! `scatter_add`: a task owns tiles of 128 columns, of one index of what is before the dimension, as many as
//! come to 16,384 elements, and adds in the order of indices: no atomics, and the same bits with any threads.
//! Types narrower than `f32` are summed in `f32`, in scratch memory, and rounded once. One long vector is one
//! tile, on one thread. Of single elements they run at 25 and 27% of the pace of a copy (with AVX2,
//! BENCHMARKS.md).

#![expect(unsafe_code, reason = "tasks own columns of one output")]

use super::{Gather, ScatterAdd};
use crate::kernels::blocks::{BLOCK, Reader};
use crate::kernels::float::{Float, as_f32_mut, is_f32};
use crate::kernels::indices::position;
use crate::kernels::lines::Lines;
use crate::kernels::places::{Places, check};
use crate::kernels::simd::add_to;
use crate::kernels::strided::{Runs, gather_runs, runs};
use crate::{Args, Disjoint, Element, Kernel, KernelError, Pairs, View, op_as};
use highwater_graph::{Layout, Op, Spec};
use std::marker::PhantomData;

/// Elements of the output that one task fills.
const TASK: usize = 1 << 14;
/// Columns of the output that one task adds to.
const COLUMNS: usize = 128;
/// Elements that one task adds at least.
const ADDED: usize = 1 << 14;

/// A tensor of which elements are asked for by index.
struct Table<'a, T> {
    storage: &'a [T],
    layout: &'a Layout,
    dim: usize,
    /// Elements from one index to the next.
    step: usize,
    /// What is behind the dimension.
    behind: Runs,
}

impl<'a, T: Element> Table<'a, T> {
    fn new(view: &'a View<'_>, dim: usize) -> Result<Self, KernelError> {
        let layout = view.layout();
        let dims = layout.shape().dims();
        let start = (dim + 1).min(dims.len());
        let behind = Layout::strided(&dims[start..], &layout.strides()[start..], 0);
        Ok(Self {
            storage: view.storage()?,
            layout,
            dim,
            step: layout.strides().get(dim).copied().unwrap_or(0),
            behind: runs(&behind),
        })
    }

    /// Where the elements before the dimension start, for the `row`-th of those.
    fn start(&self, row: usize) -> usize {
        let (dims, strides) = (self.layout.shape().dims(), self.layout.strides());
        let dim = self.dim.min(dims.len());
        self.layout.offset() + position(&dims[..dim], &strides[..dim], row)
    }

    /// Position of a column behind the dimension.
    fn column(&self, mut column: usize) -> usize {
        let mut position = 0;
        for &(extent, stride) in self.behind.iter().rev() {
            position += column % extent * stride;
            column /= extent;
        }
        position
    }
}

pub(super) fn gather<T: Element>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let dim = op_as::<Gather>(op)?.dim;
    let (table, index) = (&args.inputs[0], &args.inputs[1]);
    let lines = Lines::new(index.spec().shape(), dim);
    let below = Lines::new(table.spec().shape(), dim).extent;
    if below == 0 && index.numel() > 0 {
        return check(index, 0);
    }
    let places = Places::new(index, dim, below)?;
    let table = Table::<T>::new(table, dim)?;
    let out = args.outputs[0].slice_mut::<T>()?;
    let Lines { extent, inner, .. } = lines;
    args.pool.for_each_chunk(out, TASK, |task, out| {
        let (mut at, mut out) = (task * TASK, out);
        let mut buffer = [0; BLOCK];
        while !out.is_empty() {
            // Pieces of a line where nothing is behind the dimension, else of a row of columns.
            let (row, column) = (at / inner, at % inner);
            let left = if inner == 1 {
                extent - row % extent
            } else {
                inner - column
            };
            let (piece, rest) = out.split_at_mut(left.min(out.len()).min(BLOCK));
            let start = table.start(row / extent);
            if places.repeated {
                let from = start + places.one(at) * table.step;
                gather_runs(table.storage, from, &table.behind, column, piece);
            } else {
                let indices = &mut buffer[..piece.len()];
                places.read(at, indices);
                match (inner, &table.behind[..]) {
                    (1, _) | (_, []) => {
                        for (to, &index) in piece.iter_mut().zip(&*indices) {
                            *to = table.storage[start + index * table.step];
                        }
                    }
                    (_, &[(_, stride)]) => {
                        for (i, (to, &index)) in piece.iter_mut().zip(&*indices).enumerate() {
                            *to = table.storage[start + index * table.step + (column + i) * stride];
                        }
                    }
                    _ => {
                        for (i, (to, &index)) in piece.iter_mut().zip(&*indices).enumerate() {
                            let behind = table.column(column + i);
                            *to = table.storage[start + index * table.step + behind];
                        }
                    }
                }
            }
            at += piece.len();
            out = rest;
        }
    });
    places.verdict(lines)
}

/// May overwrite what it adds to. In types narrower than `f32` each thread keeps the sums of some columns in
/// scratch memory, so that each is rounded once.
pub(super) struct ScatterKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for ScatterKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, _: &[Spec], outputs: &[Spec], threads: usize) -> u64 {
        let dim = op.downcast().map_or(0, |op: &ScatterAdd| op.dim);
        let lines = Lines::new(outputs[0].shape(), dim);
        let columns = if is_f32::<T>() {
            0
        } else {
            COLUMNS.min(lines.inner)
        };
        (threads * lines.extent * columns * size_of::<f32>()) as u64
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        let base = inputs.get(2).filter(|&base| *base == outputs[0]);
        base.map(|_| (2, 0)).into_iter().collect()
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        scatter_add::<T>(*op_as(op)?, args)
    }
}

fn scatter_add<T: Float>(op: ScatterAdd, args: &mut Args<'_>) -> Result<(), KernelError> {
    let [source, index, base @ ..] = &*args.inputs else {
        return Ok(());
    };
    if op.extent == 0 {
        return check(index, 0);
    }
    let base = base.first().filter(|base| !base.is_overwritten());
    let keeps = op.accumulate && base.is_none();
    let base = base.map(Reader::<T>::new).transpose()?;
    let lines = Lines::new(source.spec().shape(), op.dim);
    let places = Places::new(index, op.dim, op.extent)?;
    let source = Reader::<T>::new(source)?;
    let out = Disjoint::new(args.outputs[0].slice_mut::<T>()?);
    let scratch = Disjoint::new(bytemuck::cast_slice_mut::<u8, f32>(args.scratch));
    let (inner, across) = (lines.inner, lines.inner.div_ceil(COLUMNS));
    let tile = op.extent * COLUMNS.min(inner);
    let (tiles, each) = (lines.outer * across, ADDED.div_ceil(tile));
    args.pool
        .for_each_on_thread(tiles.div_ceil(each), |task, thread| {
            let mut buffers = ([0; BLOCK], [0.0; BLOCK]);
            for number in task * each..tiles.min((task + 1) * each) {
                let (row, column) = (number / across, number % across * COLUMNS);
                let width = COLUMNS.min(inner - column);
                let start = |i: usize| (row * op.extent + i) * inner + column;
                // SAFETY: a task only touches its own columns, one part at a time.
                let part = |i: usize, len: usize| unsafe { out.part(start(i), len) };
                // Whole rows lie one behind the other.
                let (rows, len) = if width == inner {
                    (1, op.extent * width)
                } else {
                    (op.extent, width)
                };
                for i in 0..rows {
                    match &base {
                        Some(base) => base.copy(start(i), part(i, len)),
                        None if keeps => {}
                        None => part(i, len).fill(T::zeroed()),
                    }
                }
                let columns = [row, column, width];
                if is_f32::<T>() {
                    let sums = |i: usize| as_f32_mut(part(i, width)).unwrap_or_default();
                    add::<T>(lines, columns, &places, &source, &mut buffers, sums);
                    continue;
                }
                let own = thread * tile;
                // SAFETY: a thread works on one tile at a time, and has this part to itself, a row at a time.
                let sums = |i: usize, len: usize| unsafe { scratch.part(own + i * width, len) };
                for i in 0..rows {
                    T::widen(part(i, len), sums(i, len));
                }
                add::<T>(lines, columns, &places, &source, &mut buffers, |i| {
                    sums(i, width)
                });
                for i in 0..rows {
                    T::round(sums(i, len), part(i, len));
                }
            }
        });
    places.verdict(lines)
}

/// Adds some columns of the source, of one index of what is before the dimension, to rows of sums.
fn add<'s, T: Float>(
    lines: Lines,
    [row, column, width]: [usize; 3],
    places: &Places<'_>,
    source: &Reader<'_, T>,
    (indices, values): &mut ([usize; BLOCK], [f32; BLOCK]),
    sums: impl Fn(usize) -> &'s mut [f32],
) {
    let start = row * lines.extent * lines.inner + column;
    if lines.inner == 1 {
        for first in (0..lines.extent).step_by(BLOCK) {
            let len = BLOCK.min(lines.extent - first);
            places.read(start + first, &mut indices[..len]);
            source.widen(start + first, &mut values[..len]);
            for (&index, value) in indices[..len].iter().zip(&*values) {
                sums(index)[0] += value;
            }
        }
        return;
    }
    let (indices, values) = (&mut indices[..width], &mut values[..width]);
    for k in 0..lines.extent {
        let at = start + k * lines.inner;
        source.widen(at, values);
        if places.repeated {
            add_to(sums(places.one(at)), values);
        } else {
            places.read(at, indices);
            for (i, (&index, value)) in indices.iter().zip(&*values).enumerate() {
                sums(index)[i] += value;
            }
        }
    }
}
