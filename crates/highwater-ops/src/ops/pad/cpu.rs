//! The fast kernels: a row at a time.
//!
//! A task is rows of some 16,384 elements. Where a row comes from is worked out once for it, and its middle
//! is copied as a block; only what stands before and behind that is asked for by element. Of gradients a task
//! owns all that lies from the first padded dimension on, and adds row after row, in `f32`, rounded once.

#![expect(unsafe_code, reason = "tasks write parts of one output")]

use super::{Pad, PadBackward, PadMode};
use crate::kernels::blocks::Reader;
use crate::kernels::float::{Float, as_f32_mut, is_f32};
use crate::{Args, Disjoint, Kernel, KernelError, op_as};
use highwater_graph::{Op, Shape, Spec};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements that one task fills, in whole rows.
const TASK: usize = 1 << 14;
/// Elements that are read at a time.
const PIECE: usize = 512;

/// The last extent, and how many rows there are; a scalar is a row of one.
fn rows(shape: &Shape) -> (usize, usize) {
    let width = shape.last().copied().unwrap_or(1);
    (width, shape.numel() / width.max(1))
}

/// The row of the input that a row of the result is made of: dimensions from `first` on count, but for the
/// last one.
fn source_row(pad: &Pad, from: &Shape, to: &Shape, first: usize, row: usize) -> Option<usize> {
    let (mut rest, mut stride, mut source) = (row, 1, 0);
    for dim in (first..from.rank().saturating_sub(1)).rev() {
        source += pad.source(dim, rest % to[dim], from[dim])? * stride;
        rest /= to[dim];
        stride *= from[dim];
    }
    Some(source)
}

/// The elements of a row of `width` that are a whole row of `extent`, or a part of it, and where that starts.
fn middle(pad: &Pad, extent: usize, width: usize) -> (Range<usize>, usize) {
    let before = pad.pads.last().map_or(0, |pads| pads[0]);
    let start = usize::try_from(before).unwrap_or(0).min(width);
    let skipped = usize::try_from(-before).unwrap_or(0).min(extent);
    let len = (extent - skipped).min(width - start);
    (start..start + len, skipped)
}

pub(super) fn pad<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let pad: &Pad = op_as(op)?;
    let (x, y) = (&args.inputs[0], &mut args.outputs[0]);
    let (from, to) = (x.spec().shape(), y.spec().shape());
    let ((extent, _), (width, count)) = (rows(from), rows(to));
    let x = Reader::<T>::new(x)?;
    let (middle, skipped) = middle(pad, extent, width);
    let value = match pad.mode {
        PadMode::Constant(value) => T::nearest(value as f32),
        _ => T::zeroed(),
    };
    let last = from.rank().wrapping_sub(1);
    let y = Disjoint::new(y.slice_mut::<T>()?);
    let step = (TASK / width.max(1)).max(1);
    args.pool.for_each(count.div_ceil(step), |task| {
        for row in task * step..count.min((task + 1) * step) {
            // SAFETY: a row is visited once.
            let y = unsafe { y.part(row * width, width) };
            let Some(source) = source_row(pad, from, to, 0, row) else {
                y.fill(value);
                continue;
            };
            let start = source * extent;
            if !middle.is_empty() {
                x.copy(start + skipped, &mut y[middle.clone()]);
            }
            for at in (0..middle.start).chain(middle.end..width) {
                match pad.source(last, at, extent) {
                    Some(source) => x.copy(start + source, &mut y[at..=at]),
                    None => y[at] = value,
                }
            }
        }
    });
    Ok(())
}

/// Keeps the sums of what tasks fill in scratch memory, if they are not `f32`.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

/// The first dimension that is padded: what lies before it are parts by themselves.
fn first(pad: &Pad) -> usize {
    let padded = |pads: &[isize; 2]| *pads != [0; 2];
    let last = pad.pads.len().saturating_sub(1);
    pad.pads.iter().position(padded).unwrap_or(last).min(last)
}

/// Elements of a part.
fn part(first: usize, shape: &Shape) -> usize {
    shape[first..].iter().product()
}

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, _: &[Spec], outputs: &[Spec], threads: usize) -> u64 {
        let part = op.downcast().map_or(0, |op: &PadBackward| {
            part(first(&op.pad), outputs[0].shape())
        });
        let staged = if is_f32::<T>() { 0 } else { part };
        (threads * staged * size_of::<f32>()) as u64
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let PadBackward { pad, shape } = op_as(op)?;
        let (g, dx) = (&args.inputs[0], &mut args.outputs[0]);
        let to = g.spec().shape();
        let first = first(pad);
        let (len, padded) = (part(first, shape), part(first, to));
        if len == 0 {
            return Ok(());
        }
        let g = Reader::<T>::new(g)?;
        let parts = shape.numel() / len;
        let dx = Disjoint::new(dx.slice_mut::<T>()?);
        let staging: &mut [f32] = bytemuck::cast_slice_mut(args.scratch);
        let staged = if is_f32::<T>() { 0 } else { len };
        let staging = Disjoint::new(staging);
        args.pool.for_each_on_thread(parts, |index, thread| {
            // SAFETY: a part is visited once, and a thread works on one at a time.
            let (dx, sums) = unsafe {
                (
                    dx.part(index * len, len),
                    staging.part(thread * staged, staged),
                )
            };
            if let Some(dx) = as_f32_mut(dx) {
                return add(pad, shape, to, (&g, index * padded), dx);
            }
            add(pad, shape, to, (&g, index * padded), sums);
            T::round(sums, dx);
        });
        Ok(())
    }
}

/// Adds up a part.
fn add<T: Float>(
    pad: &Pad,
    from: &Shape,
    to: &Shape,
    (g, start): (&Reader<'_, T>, usize),
    sums: &mut [f32],
) {
    sums.fill(0.0);
    let first = first(pad);
    let (extent, width) = (rows(from).0, rows(to).0);
    let last = from.rank() - 1;
    let mut buffer = [0.0; PIECE];
    for row in 0..part(first, to) / width.max(1) {
        let Some(source) = source_row(pad, from, to, first, row) else {
            continue;
        };
        let sums = &mut sums[source * extent..][..extent];
        for piece in (0..width).step_by(PIECE) {
            let buffer = &mut buffer[..PIECE.min(width - piece)];
            g.widen(start + row * width + piece, buffer);
            for (at, g) in (piece..).zip(buffer) {
                if let Some(source) = pad.source(last, at, extent) {
                    sums[source] += *g;
                }
            }
        }
    }
}
