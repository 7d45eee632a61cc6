//! Updates in any form: those of which every tensor is of one type work where the tensors lie.
//!
//! A task is a chunk of 16,384 elements, of all cells and of the gradient. Where these are `f32` an update's
//! one loop goes over the chunk where it lies: each number is read once and written at most once. Narrower
//! cells are widened, updated and rounded 512 elements at a time, on the stack. No element depends on
//! another; whether the gradient is finite is one flag, which no order changes.

#![expect(unsafe_code, reason = "tasks update their own chunks of cells")]

use super::{Each, Formats};
use crate::kernels::cells::CHUNK;
use crate::kernels::float::{self, Float};
use crate::kernels::strided::for_each_piece;
use crate::{Args, Disjoint, KernelError, View};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};

/// As [`super::update`]; in the plain form all tensors are of `T`.
pub(crate) fn update_any<T: Float, const N: usize>(
    op: &'static str,
    args: &mut Args<'_>,
    formats: &Formats,
    signed: [bool; N],
    each: Each<'_, N>,
) -> Result<(), KernelError> {
    if formats.is_plain() {
        update_plain::<T, N>(op, args, each)
    } else {
        super::update::<N>(op, args, formats, signed, each)
    }
}

fn update_plain<T: Float, const N: usize>(
    op: &'static str,
    args: &mut Args<'_>,
    each: Each<'_, N>,
) -> Result<(), KernelError> {
    let wrong = || KernelError::WrongOp { op };
    let (gradient, cells) = args.inputs.split_last_mut().ok_or_else(wrong)?;
    let (gradient, layout) = (gradient.storage::<T>()?, gradient.layout());
    let len = cells.first().map_or(0, View::numel);
    let mut parts = SmallVec::<[Disjoint<'_, T>; 4]>::new();
    for cell in cells {
        parts.push(Disjoint::new(cell.slice_mut::<T>()?));
    }
    let (p, moments) = parts.split_first().ok_or_else(wrong)?;
    let moments: &[Disjoint<'_, T>; N] = moments.try_into().map_err(|_| wrong())?;
    let finite = AtomicBool::new(true);
    args.pool.for_each(len.div_ceil(CHUNK), |task| {
        let start = task * CHUNK;
        let chunk = CHUNK.min(len - start);
        for_each_piece(gradient, layout, start, chunk, &mut |at, g| {
            let (at, len) = (start + at, g.len());
            // SAFETY: chunks of different tasks, and pieces of a chunk, do not overlap.
            let (p, moments) = unsafe {
                let moments = std::array::from_fn(|i| moments[i].part(at, len));
                (p.part(at, len), moments)
            };
            if !in_f32(p, moments, g, each) {
                finite.store(false, Ordering::Relaxed);
            }
        });
    });
    if finite.into_inner() {
        Ok(())
    } else {
        Err(KernelError::NonFinite { what: "gradient" })
    }
}

/// Lets `each` work on slices of one length as `f32`; answers whether it always said yes.
fn in_f32<T: Float, const N: usize>(
    p: &mut [T],
    mut moments: [&mut [T]; N],
    g: &[f32],
    each: Each<'_, N>,
) -> bool {
    let mut fine = true;
    float::update([p], &mut |start, [p]| {
        let part = start..start + p.len();
        if N == 0 {
            let none = std::array::from_fn(|_| Default::default());
            fine &= each(p, none, &g[part]);
            return;
        }
        let of_part = moments.each_mut().map(|moment| &mut moment[part.clone()]);
        float::update(of_part, &mut |at, moments| {
            // Pieces are of one size, so that this is all of the part.
            let len = moments.first().map_or(0, |moment| moment.len());
            let g = &g[start + at..start + at + len];
            fine &= each(&mut p[at..at + len], moments, g);
        });
    });
    fine
}
