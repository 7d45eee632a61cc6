//! The fast kernels: whole rows are copied, and gradients added, column by column.
//!
//! Backward cuts the columns into tasks, not the indices: a task adds all rows in their order to
//! columns that no other task touches, without atomics, and with the same bits for any threads. In
//! types narrower than `f32` places are sorted by row first, so that a row's sum stays in `f32` from
//! its first gradient to the last and is rounded once.
//!
//! 128 columns are 512 bytes of a row of `f32`: whole lines of a cache, and few enough that usual widths have
//! work for all threads. Each task reads all indices for that, which are few beside the rows.

#![expect(unsafe_code, reason = "tasks own columns of one output")]

use super::EmbeddingBackward;
use crate::kernels::float::{Float, as_f32_mut, is_f32};
use crate::kernels::indices::Indices;
use crate::kernels::simd::add_to;
use crate::kernels::strided::{gather, widen};
use crate::{Args, Disjoint, Element, Kernel, KernelError, Pairs, View, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Rows of the output that one task copies.
const ROWS: usize = 16;
/// Elements of the gradient that one task fills with its start.
const START: usize = 1 << 16;
/// Columns of the gradient that one task sums.
const COLUMNS: usize = 128;

pub(super) fn embedding<T: Element>(_op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let weight = &args.inputs[0];
    let [rows, width] = *weight.dims() else {
        return Ok(());
    };
    let indices = Indices::of(&args.inputs[1])?;
    indices.check(rows, None)?;
    let (layout, weight) = (weight.layout(), weight.storage::<T>()?);
    let out = args.outputs[0].slice_mut::<T>()?;
    args.pool.for_each_chunk(out, ROWS * width, |task, out| {
        for (i, row) in out.chunks_mut(width).enumerate() {
            let index = indices.get(task * ROWS + i) as usize;
            gather(weight, layout, index * width, row);
        }
    });
    Ok(())
}

/// May overwrite the gradient so far. In types narrower than `f32`, so that each sum is rounded once,
/// keeps in scratch memory the indices in order of rows.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

/// A row, and where in the gradient something is that it gets.
type Place = [u64; 2];

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], _threads: usize) -> u64 {
        let places = if is_f32::<T>() {
            0
        } else {
            inputs[1].layout.numel()
        };
        (places * size_of::<Place>()) as u64
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        let existing = inputs.get(2).filter(|&existing| *existing == outputs[0]);
        existing.map(|_| (2, 0)).into_iter().collect()
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        backward::<T>(*op_as(op)?, args)
    }
}

/// What the plain references trust: that indices are of rows.
pub(super) fn check(indices: &View<'_>, rows: usize) -> Result<(), KernelError> {
    Indices::of(indices)?.check(rows, None).map(|_| ())
}

fn backward<T: Float>(op: EmbeddingBackward, args: &mut Args<'_>) -> Result<(), KernelError> {
    let rows = op.rows;
    let [grad, indices, existing @ ..] = &*args.inputs else {
        return Ok(());
    };
    let indices = Indices::of(indices)?;
    indices.check(rows, None)?;
    let in_place = existing.iter().any(View::is_overwritten);
    let existing = existing.first().filter(|_| !in_place);
    let existing = existing.map(|view| Ok((view.layout(), view.storage::<T>()?)));
    let existing = existing.transpose()?;
    let out = args.outputs[0].slice_mut::<T>()?;
    if !in_place {
        args.pool
            .for_each_chunk(out, START, |task, out| match existing {
                Some((layout, data)) => gather(data, layout, task * START, out),
                None => out.fill(T::zeroed()),
            });
    }
    let width = out.len() / rows.max(1);
    let (layout, grad) = (grad.layout(), grad.storage::<T>()?);
    let places = if is_f32::<T>() { 0 } else { indices.len() };
    let places = &mut bytemuck::cast_slice_mut::<u8, Place>(args.scratch)[..places];
    for (i, place) in places.iter_mut().enumerate() {
        *place = [indices.get(i) as u64, i as u64];
    }
    places.sort_unstable();
    let (out, places) = (Disjoint::new(out), &*places);
    args.pool.for_each(width.div_ceil(COLUMNS), |task| {
        let mut buffers = [[0.0_f32; COLUMNS]; 2];
        let start = task * COLUMNS;
        let len = COLUMNS.min(width - start);
        let [piece, sums] = buffers.each_mut().map(|buffer| &mut buffer[..len]);
        // SAFETY: a task only touches its own columns, one part at a time.
        let part = |row: usize| unsafe { out.part(row * width + start, len) };
        let mut add = |sums: &mut [f32], i: usize| {
            widen(grad, layout, i * width + start, piece);
            add_to(sums, piece);
        };
        if is_f32::<T>() {
            for i in 0..indices.len() {
                let sums = as_f32_mut(part(indices.get(i) as usize));
                add(sums.unwrap_or_default(), i);
            }
        }
        for places in places.chunk_by(|a, b| a[0] == b[0]) {
            let out = part(places[0][0] as usize);
            T::widen(out, sums);
            for place in places {
                add(sums, place[1] as usize);
            }
            T::round(sums, out);
        }
    });
    Ok(())
}
