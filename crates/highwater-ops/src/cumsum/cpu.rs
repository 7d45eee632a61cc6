//! The fast kernel: a row at a time along the last dimension, a tile of lines along others.

use super::CumSum;
use crate::blocks::BLOCK;
use crate::float::Float;
use crate::lines::{Lines, map_along};
use crate::simd::multiversion;
use crate::{Args, Kernel, KernelError, Pairs, op_as, pointwise};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// May overwrite its input.
pub(super) struct CumSumKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for CumSumKernel<T> {
    fn scratch_bytes(&self, op: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        let dim = op.downcast().map_or(0, |op: &CumSum| op.dim);
        Lines::new(inputs[0].shape(), dim).bytes::<T>(threads)
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        pointwise::in_place(inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let CumSum { dim, reverse } = *op_as(op)?;
        let row = |x: &mut [f32]| {
            if reverse {
                sum_along(x.iter_mut().rev());
            } else {
                sum_along(x.iter_mut());
            }
        };
        map_along::<T>(args, dim, row, |x, width| {
            let mut sums = [0.0; BLOCK];
            let sums = &mut sums[..width];
            if reverse {
                x.rchunks_exact_mut(width).for_each(|row| add_to(sums, row));
            } else {
                x.chunks_exact_mut(width).for_each(|row| add_to(sums, row));
            }
        })
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
