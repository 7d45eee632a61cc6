//! The fast kernel.
//!
//! 64 words, of 16 counters, are drawn at a time, in loops that the compiler makes vectors of; which word an
//! element gets is a function of its place, so that no mask is kept and backward draws the same again.
//! `blocks.rs` cuts. It runs at 38% of the pace of a copy: ten rounds of Philox for four elements
//! (BENCHMARKS.md).

use super::Dropout;
use crate::device::in_place;
use crate::kernels::blocks;
use crate::kernels::float::Float;
use crate::kernels::philox::{self, WORDS};
use crate::kernels::simd::multiversion;
use crate::{Args, Kernel, KernelError, Pairs, op_as};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// May overwrite its input.
pub(super) struct DropoutKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for DropoutKernel<T> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        in_place(inputs, outputs)
    }

    fn launch(&self, op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let op: &Dropout = op_as(op)?;
        let output = &mut args.outputs[0];
        // The output is row-major: the position of an element is its flat index.
        blocks::map_floats::<T, 1>(args.pool, [&args.inputs[0]], output, &|start, [x], y| {
            drop_some(op, start as u64, x, y);
        })
    }
}

multiversion! {
    fn drop_some[I](op: &Dropout, start: u64, x: &[f32], y: &mut [f32]) {
        let scale = op.scale() as f32;
        let Ok(threshold) = u32::try_from(op.threshold()) else {
            return y.fill(0.0);
        };
        for (i, (y, x)) in y.chunks_mut(WORDS).zip(x.chunks(WORDS)).enumerate() {
            let words = philox::words(op.seed, op.offset, start + (i * WORDS) as u64);
            for ((y, &x), word) in y.iter_mut().zip(x).zip(words) {
                *y = if word < threshold { 0.0 } else { x * scale };
            }
        }
    }
}
