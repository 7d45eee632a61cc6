//! The fast kernel: one pass, in chunks of a fixed size.
//!
//! All of an update is one loop over parameter, sum and gradient, as in `adamw/cpu.rs`: each is read once and
//! written at most once. `formats` says how cells are cut, and in which form they lie.

use super::Adagrad;
use crate::kernels::cells::is_finite_magnitude;
use crate::kernels::float::Float;
use crate::kernels::formats;
use crate::kernels::simd::multiversion;
use crate::{Args, KernelError, op_as};
use highwater_graph::Op;

/// What the inner loop multiplies by.
struct Constants {
    sign: f32,
    weight_decay: f32,
    rate: f32,
    eps: f32,
}

multiversion! {
    /// Updates a piece; answers whether its gradient is finite.
    fn update(c: &Constants, p: &mut [f32], s: &mut [f32], g: &[f32]) -> bool {
        let mut largest = 0;
        for ((p, s), &g) in p.iter_mut().zip(s).zip(g) {
            largest = largest.max(g.to_bits() << 1);
            let g = c.sign * g + c.weight_decay * *p;
            *s += g * g;
            *p -= c.rate * (g / (s.sqrt() + c.eps));
        }
        is_finite_magnitude(largest)
    }
}

pub(super) fn kernel<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &Adagrad = op_as(op)?;
    let c = Constants {
        sign: op.sign() as f32,
        weight_decay: op.weight_decay as f32,
        rate: op.rate() as f32,
        eps: op.eps as f32,
    };
    let (first, initial) = (op.step <= 1, op.initial as f32);
    formats::update_any::<T, 1>(Adagrad::NAME, args, &op.formats, [false], &|p, [s], g| {
        if first {
            s.fill(initial);
        }
        update(&c, p, s, g)
    })
}
