//! The fast kernels: a row at a time, in place; backward is that of a norm without a mean.
//!
//! A row stays in the first cache between its squares and the scaling, so that memory sees one reading
//! and one writing.
//!
//! Tasks, the 64 lanes of squares and the order in which they are added are those of `layer_norm/cpu.rs`,
//! whose first walk, for the mean, is not needed here; backward adds for the weight as
//! `layer_norm/backward_cpu.rs` does. They run at 55 and 67% of the pace of a copy (BENCHMARKS.md).

#![expect(unsafe_code, reason = "tasks write statistics of their own rows")]

use super::{BACKWARD, NAME, RmsNorm, RmsNormBackward};
use crate::device::in_place;
use crate::kernels::blocks::{BLOCK, map_rows, row_bytes};
use crate::kernels::float::Float;
use crate::ops::layer_norm::backward_cpu::{Norm, scratch_bytes};
use crate::ops::layer_norm::cpu::{ONES, ZEROS, affine, normalise, part, squares};
use crate::ops::layer_norm::rows_and_width;
use crate::{Args, Disjoint, Kernel, KernelError, Pairs, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// May overwrite its input.
pub(super) struct RmsNormKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for RmsNormKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        row_bytes::<T>(rows_and_width(inputs[0].shape()).1, threads)
    }

    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(&inputs[..1], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        rms_norm::<T>(*op_as(op)?, args)
    }
}

fn rms_norm<T: Float>(op: RmsNorm, args: &mut Args<'_>) -> Result<(), KernelError> {
    let [y, rstd] = args.outputs else {
        return Err(KernelError::WrongOp { op: NAME });
    };
    let weight = affine::<T>(args.inputs, 1)?;
    let rstd = Disjoint::new(rstd.slice_mut::<f32>()?);
    let staging = bytemuck::cast_slice_mut(args.scratch);
    map_rows::<T>(args.pool, &args.inputs[0], y, staging, &|_, row, data| {
        let mean_square = squares(data, 0.0, 0.0) / data.len() as f32;
        let scale = (1.0 / (f64::from(mean_square) + op.eps).sqrt()) as f32;
        // SAFETY: every row is visited once.
        unsafe { rstd.part(row, 1)[0] = scale };
        for (i, data) in data.chunks_mut(BLOCK).enumerate() {
            let len = data.len();
            let mut buffer = [0.0; BLOCK];
            let weight = part(weight.as_ref(), &ONES, i * BLOCK, &mut buffer[..len]);
            normalise(data, weight, &ZEROS[..len], (0.0, 0.0), scale);
        }
    })
}

/// May overwrite the gradient.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for BackwardKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], threads: usize) -> u64 {
        scratch_bytes(&inputs[1], threads)
    }

    fn in_place(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        let of_input = op
            .downcast()
            .is_some_and(|op: &RmsNormBackward| op.wanted[0]);
        in_place(&inputs[..usize::from(of_input)], outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: &RmsNormBackward = op_as(op)?;
        let [g, x, rstd, weight @ ..] = &*args.inputs else {
            return Err(KernelError::WrongOp { op: BACKWARD });
        };
        let [of_x, of_weight] = op.wanted;
        let norm = Norm {
            g,
            x,
            mean: None,
            rstd,
            weight: weight.first(),
            wanted: [of_x, of_weight, false],
        };
        norm.gradients::<T>(args.pool, args.outputs, args.scratch)
    }
}
