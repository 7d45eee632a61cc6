//! The fast kernels: one pass, in chunks of a fixed size.
//!
//! A task is 16,384 elements of the cell, read and written once, where they lie if they are `f32`; a value
//! that lies otherwise is copied 512 elements at a time. Nothing is summed across elements.

use super::LerpCell;
use crate::kernels::cells::CHUNK;
use crate::kernels::float::{Float, update};
use crate::kernels::simd::{add_to, multiversion};
use crate::kernels::strided::{for_each_piece, gather};
use crate::{Args, Element, KernelError, View, op_as};
use highwater_graph::Op;

multiversion! {
    /// The part that is near 0 is multiplied by the weight, as PyTorch does: both ends are exact.
    fn lerp(weight: f32, cell: &mut [f32], value: &[f32]) {
        if weight < 0.5 {
            for (to, &from) in cell.iter_mut().zip(value) {
                *to += weight * (from - *to);
            }
        } else {
            for (to, &from) in cell.iter_mut().zip(value) {
                *to = from - (from - *to) * (1.0 - weight);
            }
        }
    }
}

/// The cell and the value.
fn operands<'a, 'b>(
    op: &dyn Op,
    inputs: &'a mut [View<'b>],
) -> Result<(&'a mut View<'b>, &'a View<'b>), KernelError> {
    match inputs {
        [cell, value] => Ok((cell, value)),
        _ => Err(KernelError::WrongOp { op: op.name() }),
    }
}

pub(super) fn accumulate<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    combine::<T>(op, args, add_to)
}

pub(super) fn lerp_cell<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let weight = op_as::<LerpCell>(op)?.weight as f32;
    combine::<T>(op, args, |to, from| lerp(weight, to, from))
}

/// Writes what `each` makes of the cell and the value, as `f32`.
fn combine<T: Float>(
    op: &dyn Op,
    args: &mut Args<'_>,
    each: impl Fn(&mut [f32], &[f32]) + Sync,
) -> Result<(), KernelError> {
    let (cell, value) = operands(op, args.inputs)?;
    let (from, layout) = (value.storage::<T>()?, value.layout());
    let cell = cell.slice_mut::<T>()?;
    args.pool.for_each_chunk(cell, CHUNK, |task, chunk| {
        for_each_piece(from, layout, task * CHUNK, chunk.len(), &mut |at, piece| {
            update([&mut chunk[at..at + piece.len()]], &mut |at, [to]| {
                let from = &piece[at..at + to.len()];
                each(to, from);
            });
        });
    });
    Ok(())
}

pub(super) fn assign<T: Element>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let (cell, value) = operands(op, args.inputs)?;
    let (from, layout) = (value.storage::<T>()?, value.layout());
    let cell = cell.slice_mut::<T>()?;
    args.pool.for_each_chunk(cell, CHUNK, |task, chunk| {
        gather(from, layout, task * CHUNK, chunk);
    });
    Ok(())
}
