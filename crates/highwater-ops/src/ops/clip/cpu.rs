//! The fast kernels.
//!
//! Blocks of 32,768 elements are numbered through all gradients, and each is a task, so that many small
//! gradients are shared as well as one large one, in one pass over all of them. Squares are added in 32 lanes
//! of `f64` (four vectors with AVX-512), where they are exact; an element's lane is its place in its block
//! modulo 32, in any layout, as pieces are multiples of that. Lanes of a block, and then blocks, are added in
//! their order.

use super::{BLOCK, ClipCoefficient, blocks};
use crate::kernels::float::{Float, PIECE};
use crate::kernels::simd::multiversion;
use crate::kernels::strided::for_each_piece;
use crate::{Args, Kernel, KernelError, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Sums that run side by side.
const LANES: usize = 32;
const _: () = assert!(
    PIECE.is_multiple_of(LANES),
    "an element's lane must not depend on the layout"
);

multiversion! {
    fn add_squares(sums: &mut [f64; LANES], values: &[f32]) {
        let (rows, rest) = values.as_chunks::<LANES>();
        for row in rows {
            for (sum, &x) in sums.iter_mut().zip(row) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        for (sum, &x) in sums.iter_mut().zip(rest) {
            *sum += f64::from(x) * f64::from(x);
        }
    }
}

/// Keeps the sum of each block in scratch memory.
pub(super) struct GradNormKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for GradNormKernel<T> {
    fn scratch_bytes(&self, _: &dyn Op, inputs: &[Spec], _: &[Spec], _threads: usize) -> u64 {
        let blocks: usize = inputs.iter().map(|spec| blocks(&spec.layout)).sum();
        (blocks * size_of::<f64>()) as u64
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        grad_norm::<T>(args)
    }
}

fn grad_norm<T: Float>(args: &mut Args<'_>) -> Result<(), KernelError> {
    let inputs = &*args.inputs;
    for input in inputs {
        input.storage::<T>()?;
    }
    let total: usize = inputs.iter().map(|input| blocks(input.layout())).sum();
    let scratch = &mut args.scratch[..total * size_of::<f64>()];
    let partial: &mut [f64] = bytemuck::cast_slice_mut(scratch);
    args.pool.for_each_chunk(partial, 1, |mut block, partial| {
        let mut input = inputs.iter();
        let owner = input.find(|input| {
            let own = blocks(input.layout());
            let found = block < own;
            block -= if found { 0 } else { own };
            found
        });
        let mut sums = [0.0; LANES];
        if let Some((owner, storage)) = owner.and_then(|o| Some((o, o.storage::<T>().ok()?))) {
            let start = block * BLOCK;
            let len = BLOCK.min(owner.numel() - start);
            for_each_piece(storage, owner.layout(), start, len, &mut |_, piece| {
                add_squares(&mut sums, piece);
            });
        }
        partial[0] = sums.iter().sum();
    });
    let norm = partial.iter().sum::<f64>().sqrt();
    args.outputs[0].slice_mut::<f32>()?[0] = norm as f32;
    Ok(())
}

pub(super) fn clip_coefficient(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &ClipCoefficient = op_as(op)?;
    let norm = args.inputs[0].slice::<f32>()?[0];
    let coefficient = (op.max_norm / (f64::from(norm) + 1e-6)) as f32;
    // Unlike `min`, this keeps NaN.
    let clipped = if coefficient > 1.0 { 1.0 } else { coefficient };
    args.outputs[0].slice_mut::<f32>()?[0] = clipped;
    Ok(())
}
