//! The fast kernel.
//!
//! Bits without their sign, as whole numbers, are in the order of magnitudes: a maximum of them, by vectors,
//! stands for a test of each number. A task is 16,384 elements; what is shared is one flag, which no order
//! changes. Updates make the same test in the loop that reads the gradient anyway.

use super::{Finite, Otherwise};
use crate::kernels::cells::{CHUNK, is_finite_f64, is_finite_magnitude};
use crate::kernels::float::Float;
use crate::kernels::simd::multiversion;
use crate::kernels::strided::for_each_piece;
use crate::{Args, KernelError, op_as};
use highwater_graph::Op;
use std::sync::atomic::{AtomicBool, Ordering};

multiversion! {
    fn all_finite(values: &[f32]) -> bool {
        let largest = values.iter().fold(0, |largest, x| largest.max(x.to_bits() << 1));
        is_finite_magnitude(largest)
    }
}

pub(super) fn kernel<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &Finite = op_as(op)?;
    let finite = AtomicBool::new(true);
    for value in args.inputs.iter() {
        let (storage, layout) = (value.storage::<T>()?, value.layout());
        let len = value.numel();
        args.pool.for_each(len.div_ceil(CHUNK), |task| {
            let start = task * CHUNK;
            let chunk = CHUNK.min(len - start);
            for_each_piece(storage, layout, start, chunk, &mut |_, piece| {
                if !all_finite(piece) {
                    finite.store(false, Ordering::Relaxed);
                }
            });
        });
    }
    answer(op, finite.into_inner())
}

/// What the guard says of its inputs.
fn answer(op: &Finite, finite: bool) -> Result<(), KernelError> {
    let what = op.what;
    match op.otherwise {
        _ if finite => Ok(()),
        Otherwise::Stop => Err(KernelError::NonFinite { what }),
        Otherwise::Skip => Err(KernelError::Skip { what }),
    }
}

/// The guard for tensors of `F64`.
pub(super) fn kernel_f64(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let mut finite = true;
    for value in args.inputs.iter() {
        finite &= is_finite_f64(value)?;
    }
    answer(op_as(op)?, finite)
}

#[cfg(test)]
mod tests {
    use super::all_finite;

    #[test]
    fn infinities_and_nans_are_told_from_large_numbers() {
        let mut values = [f32::MAX; 67];
        values[5] = f32::MIN;
        assert!(all_finite(&values) && all_finite(&[]));
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
            values[66] = bad;
            assert!(!all_finite(&values));
        }
    }
}
