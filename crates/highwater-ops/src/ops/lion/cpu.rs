//! The fast kernel: one pass, in chunks of a fixed size.
//!
//! All of an update is one loop over parameter, moment and gradient, as in `adamw/cpu.rs`: each is read once
//! and written at most once. The sign is copied to the step by bits, and a direction of 0 is a selection:
//! nothing branches. `formats` says how cells are cut, and in which form they lie.

use super::Lion;
use crate::kernels::cells::is_finite_magnitude;
use crate::kernels::float::Float;
use crate::kernels::formats;
use crate::kernels::simd::multiversion;
use crate::{Args, KernelError, op_as};
use highwater_graph::Op;

/// What the inner loop multiplies by.
struct Constants {
    lr: f32,
    keep: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
}

multiversion! {
    /// Updates a piece; answers whether its gradient is finite.
    fn update(c: &Constants, p: &mut [f32], m: &mut [f32], g: &[f32]) -> bool {
        let mut largest = 0;
        for ((p, m), &g) in p.iter_mut().zip(m).zip(g) {
            largest = largest.max(g.to_bits() << 1);
            let direction = c.beta1 * *m + c.one_minus_beta1 * g;
            let step = if direction == 0.0 { 0.0 } else { c.lr.copysign(direction) };
            *p = c.keep * *p - step;
            *m = c.beta2 * *m + c.one_minus_beta2 * g;
        }
        is_finite_magnitude(largest)
    }
}

pub(super) fn kernel<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &Lion = op_as(op)?;
    let c = Constants {
        lr: op.lr as f32,
        keep: (1.0 - op.lr * op.weight_decay) as f32,
        beta1: op.beta1 as f32,
        one_minus_beta1: (1.0 - op.beta1) as f32,
        beta2: op.beta2 as f32,
        one_minus_beta2: (1.0 - op.beta2) as f32,
    };
    formats::update_any::<T, 1>(Lion::NAME, args, &op.formats, [true], &|p, [m], g| {
        update(&c, p, m, g)
    })
}
