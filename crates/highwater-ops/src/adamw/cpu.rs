//! The fast kernel: one pass, in chunks of a fixed size.

#![expect(
    unsafe_code,
    reason = "tasks update their own chunks of three cells; code for several processors"
)]

use super::AdamW;
use crate::cell::CHUNK;
use crate::finite::is_finite_magnitude;
use crate::float::Float;
use crate::simd::multiversion;
use crate::strided::for_each_piece;
use crate::{Args, Disjoint, KernelError, float, formats, op_as};
use highwater_graph::Op;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the inner loop multiplies by.
struct Constants {
    keep: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    correction: f32,
    eps: f32,
    step_size: f32,
}

impl Constants {
    fn new(op: &AdamW) -> Self {
        let correction1 = 1.0 - op.beta1.powf(op.step as f64);
        let correction2 = 1.0 - op.beta2.powf(op.step as f64);
        Self {
            keep: (1.0 - op.lr * op.weight_decay) as f32,
            one_minus_beta1: (1.0 - op.beta1) as f32,
            beta2: op.beta2 as f32,
            one_minus_beta2: (1.0 - op.beta2) as f32,
            correction: correction2.sqrt().recip() as f32,
            eps: op.eps as f32,
            step_size: (op.lr / correction1) as f32,
        }
    }
}

multiversion! {
    /// Updates a piece; answers whether its gradient is finite.
    fn update(c: &Constants, p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) -> bool {
        let mut largest = 0;
        for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
            largest = largest.max(g.to_bits() << 1);
            *m += c.one_minus_beta1 * (g - *m);
            *v = c.beta2 * *v + c.one_minus_beta2 * (g * g);
            let denominator = v.sqrt() * c.correction + c.eps;
            *p = c.keep * *p - c.step_size * *m / denominator;
        }
        is_finite_magnitude(largest)
    }
}

pub(super) fn kernel<T: Float>(op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
    let op: &AdamW = op_as(op)?;
    let constants = Constants::new(op);
    if !op.formats.is_plain() {
        let signed = [true, false];
        return formats::update::<2>(AdamW::NAME, args, &op.formats, signed, |p, [m, v], g| {
            update(&constants, p, m, v, g)
        });
    }
    let [p, m, v, g] = args.inputs else {
        return Err(KernelError::WrongOp { op: op.name() });
    };
    let (gradient, layout) = (g.storage::<T>()?, g.layout());
    let len = p.numel();
    let p = Disjoint::new(p.slice_mut::<T>()?);
    let m = Disjoint::new(m.slice_mut::<T>()?);
    let v = Disjoint::new(v.slice_mut::<T>()?);
    let finite = AtomicBool::new(true);
    args.pool.for_each(len.div_ceil(CHUNK), |task| {
        let start = task * CHUNK;
        let chunk = CHUNK.min(len - start);
        for_each_piece(gradient, layout, start, chunk, |at, g| {
            let (at, len) = (start + at, g.len());
            // SAFETY: chunks of different tasks, and pieces of a chunk, do not overlap.
            let (p, m, v) = unsafe { (p.part(at, len), m.part(at, len), v.part(at, len)) };
            float::update([p, m, v], |at, [p, m, v]| {
                if !update(&constants, p, m, v, &g[at..at + p.len()]) {
                    finite.store(false, Ordering::Relaxed);
                }
            });
        });
    });
    if finite.into_inner() {
        Ok(())
    } else {
        Err(KernelError::NonFinite { what: "gradient" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_that_is_not_finite_is_noticed_wherever_it_stands() {
        let constants = Constants::new(&crate::adamw::TYPICAL);
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 15, 36] {
                let mut g = [f32::MAX; 37];
                let (mut p, mut m, mut v) = ([1.0; 37], [0.0; 37], [0.0; 37]);
                assert!(update(&constants, &mut p, &mut m, &mut v, &g));
                g[at] = bad;
                assert!(!update(&constants, &mut p, &mut m, &mut v, &g));
            }
        }
    }
}
