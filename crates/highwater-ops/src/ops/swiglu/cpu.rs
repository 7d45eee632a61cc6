//! The fast backward kernel: both gradients, a block at a time.
//!
//! A task is 16,384 elements, 1,024 at a time. One sigmoid gives both gradients, so that `g` and `gate` are
//! read once and it is made once, where two kernels would do so twice. `g` and `up` are copied to where the
//! gradients go, unless they lie there, and turned into them. Nothing is summed. It runs at 62% of the pace
//! of a copy, forward at 93% (BENCHMARKS.md).

#![expect(unsafe_code, reason = "tasks write disjoint blocks of two outputs")]

use super::BACKWARD;
use crate::kernels::blocks::{BLOCK, Reader, Source};
use crate::kernels::float::{Float, as_f32_mut};
use crate::kernels::math;
use crate::kernels::simd::multiversion;
use crate::ops::silu;
use crate::{Args, Disjoint, Kernel, KernelError, Pairs};
use highwater_graph::{Op, Spec};
use std::marker::PhantomData;

/// Elements that one task works on.
const TASK: usize = 16 * BLOCK;

/// The gradient of `gate` may lie over `g`, that of `up` over `up`.
pub(super) struct BackwardKernel<T>(pub(super) PhantomData<fn() -> T>);

impl<T: Float> Kernel for BackwardKernel<T> {
    fn in_place(&self, _op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Pairs {
        let pairs = [(0, 0), (2, 1)].into_iter();
        pairs.filter(|&(i, o)| inputs[i] == outputs[o]).collect()
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let ([g, gate, up], [dgate, dup]) = (&*args.inputs, &mut *args.outputs) else {
            return Err(KernelError::WrongOp { op: BACKWARD });
        };
        let numel = g.numel();
        let g = Source::<T>::new(g, dgate)?;
        let gate = Reader::<T>::new(gate)?;
        let up = Source::<T>::new(up, dup)?;
        let dgate = Disjoint::new(dgate.slice_mut::<T>()?);
        let dup = Disjoint::new(dup.slice_mut::<T>()?);
        args.pool.for_each(numel.div_ceil(TASK), |task| {
            let end = numel.min((task + 1) * TASK);
            let mut buffers = [[0.0; BLOCK]; 3];
            for start in (task * TASK..end).step_by(BLOCK) {
                let len = BLOCK.min(end - start);
                let [gate_buffer, wide_dgate, wide_dup] = buffers.each_mut().map(|b| &mut b[..len]);
                // SAFETY: blocks of different steps and tasks do not overlap.
                let (dgate, dup) = unsafe { (dgate.part(start, len), dup.part(start, len)) };
                let gate = gate.read(start, gate_buffer);
                if let (Some(dgate), Some(dup)) = (as_f32_mut(dgate), as_f32_mut(dup)) {
                    g.widen_over(start, dgate);
                    up.widen_over(start, dup);
                    gradients(gate, dgate, dup);
                    continue;
                }
                g.load(start, dgate, wide_dgate);
                up.load(start, dup, wide_dup);
                gradients(gate, wide_dgate, wide_dup);
                T::round(wide_dgate, dgate);
                T::round(wide_dup, dup);
            }
        });
        Ok(())
    }
}

multiversion! {
    /// Turns the output's gradient into that of `gate`, and `up` into its own.
    fn gradients[I](gate: &[f32], g: &mut [f32], up: &mut [f32]) {
        for ((&gate, g), up) in gate.iter().zip(g).zip(up) {
            let sigmoid = math::sigmoid::<I>(gate);
            let (of_gate, of_up) = (*up * silu::slope::<I>(gate, sigmoid), gate * sigmoid);
            (*g, *up) = (*g * of_gate, *g * of_up);
        }
    }
}
