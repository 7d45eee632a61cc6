//! The kernels. That of floats: a row at a time along the last dimension, a tile of lines along others.
//!
//! Sums are of `f64`, rounded as they are written. Along a row each waits for the one before (49% of the pace
//! of a copy), and one long row is one thread's; along others neighbouring lines are the lanes of vectors, a
//! sum each (14%; with AVX2, BENCHMARKS.md). Either way a line's elements are added in their order.

use super::CumSum;
use crate::kernels::blocks::BLOCK;
use crate::kernels::lines::OfLine;
use crate::kernels::simd::multiversion;
use crate::kernels::whole::{Whole, running};
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

/// Running sums of whole numbers.
pub(super) fn sum_wholes<T: Whole>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let CumSum { dim, reverse } = *op_as(op)?;
    running::<T>(args, dim, reverse, i64::wrapping_add)
}
