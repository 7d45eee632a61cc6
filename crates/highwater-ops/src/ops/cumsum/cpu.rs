//! The kernels. That of floats: a row at a time along the last dimension, a tile of lines along others.
//!
//! Sums are of `f64`, rounded as they are written. Along a row each waits for the one before (49% of the pace
//! of a copy), and one long row is one thread's; along others neighbouring lines are the lanes of vectors, a
//! sum each (14%; with AVX2, BENCHMARKS.md). Either way a line's elements are added in their order.

use super::CumSum;
use crate::kernels::blocks::{BLOCK, Reader};
use crate::kernels::lines::{Lines, OfLine};
use crate::kernels::simd::multiversion;
use crate::kernels::whole::Whole;
use crate::{Args, KernelError, op_as};
use highwater_graph::Op;

impl OfLine for CumSum {
    fn dim(&self) -> usize {
        self.dim
    }

    fn row(&self, x: &mut [f32]) {
        if self.reverse {
            sum_along(x.iter_mut().rev());
        } else {
            sum_along(x.iter_mut());
        }
    }

    fn columns(&self, x: &mut [f32], width: usize) {
        let mut sums = [0.0; BLOCK];
        let sums = &mut sums[..width];
        if self.reverse {
            x.rchunks_exact_mut(width).for_each(|row| add_to(sums, row));
        } else {
            x.chunks_exact_mut(width).for_each(|row| add_to(sums, row));
        }
    }
}

/// Turns elements into their running sums.
fn sum_along<'a>(x: impl Iterator<Item = &'a mut f32>) {
    let mut sum = 0.0_f64;
    for x in x {
        sum += f64::from(*x);
        *x = sum as f32;
    }
}

multiversion! {
    /// Adds a row to sums and leaves them there.
    fn add_to[I](sums: &mut [f64], x: &mut [f32]) {
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum += f64::from(*x);
            *x = *sum as f32;
        }
    }
}

/// Running sums of whole numbers: those in front of a dimension are one task each.
pub(super) fn sum_wholes<T: Whole>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let CumSum { dim, reverse } = *op_as(op)?;
    let Lines { extent, inner, .. } = Lines::new(args.outputs[0].spec().shape(), dim);
    let reader = Reader::<T>::new(&args.inputs[0])?;
    let output = args.outputs[0].slice_mut::<i64>()?;
    let each = extent * inner;
    if each == 0 {
        return Ok(());
    }
    args.pool.for_each_chunk(output, each, |task, sums| {
        let mut buffer = [T::zeroed(); BLOCK];
        for (i, sums) in sums.chunks_mut(BLOCK).enumerate() {
            let x = reader.piece(task * each + i * BLOCK, &mut buffer[..sums.len()]);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = x.wide();
            }
        }
        for i in inner..each {
            let (from, to) = if reverse {
                (each - 1 - (i - inner), each - 1 - i)
            } else {
                (i - inner, i)
            };
            sums[to] = sums[to].wrapping_add(sums[from]);
        }
    });
    Ok(())
}
