//! Quotients that are 0 rather than undefined where the divisor is.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::reduce_to;
use crate::{Entry, Fill, Mul, MulScalar, Neg};
use highwater_graph::{Backward, OpError};
use std::hash::Hasher;

/// `a / b`, and 0 where `b` is 0. So are its gradients there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DivOrZero;

/// How a norm `y` grows with its element `x`: `sgn(x) |x / y|^(p - 1)` of inputs `x` and `y`, and 0 where
/// `x` or `y` is 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormSlope {
    /// The exponent of the norm.
    pub p: f64,
}

pointwise_op!(DivOrZero: 2, NormSlope: 2);

impl Pointwise<2> for DivOrZero {
    const NAME: &'static str = "div_or_zero";
    const FLOPS: f64 = 4.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
        if b == 0.0 { 0.0 } else { a / b }
    }

    fn exact(&self, [a, b]: [f64; 2]) -> f64 {
        if b == 0.0 { 0.0 } else { a / b }
    }

    /// Of the gradient `u`: `u / b` for `a`, and `-(u / b) (a / b)` for `b`.
    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(u) = backward.grad(0) else {
            return Ok(());
        };
        let (a, b, y) = (backward.input(0), backward.input(1), backward.output(0));
        let quotient = backward.emit_one(*self, &[u, b.clone()])?;
        if backward.needs(0) {
            let grad = reduce_to(backward, quotient.clone(), a.shape())?;
            backward.set(0, grad);
        }
        if backward.needs(1) {
            let product = backward.emit_one(Mul, &[quotient, y])?;
            let product = reduce_to(backward, product, b.shape())?;
            let grad = backward.emit_one(Neg, &[product])?;
            backward.set(1, grad);
        }
        Ok(())
    }
}

impl Pointwise<2> for NormSlope {
    const NAME: &'static str = "norm_slope";
    const FLOPS: f64 = 40.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x, y]: [f32; 2]) -> f32 {
        let power = (x / y).abs().powf((self.p - 1.0) as f32);
        if x == 0.0 || y == 0.0 {
            0.0
        } else {
            power.copysign(x)
        }
    }

    fn exact(&self, [x, y]: [f64; 2]) -> f64 {
        let power = (x / y).abs().powf(self.p - 1.0);
        if x == 0.0 || y == 0.0 {
            0.0
        } else {
            power.copysign(x)
        }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.p.to_bits());
    }

    /// Of the gradient `u` and the output `s`: `(p - 1) u s / x` for `x`, and `-(p - 1) u s / y` for `y`.
    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let Some(u) = backward.grad(0) else {
            return Ok(());
        };
        let s = backward.output(0);
        let product = backward.emit_one(Mul, &[u, s])?;
        for (i, value) in [self.p - 1.0, 1.0 - self.p].into_iter().enumerate() {
            if backward.needs(i) {
                let input = backward.input(i);
                let grad = backward.emit_one(DivOrZero, &[product.clone(), input.clone()])?;
                let grad = reduce_to(backward, grad, input.shape())?;
                let grad = backward.emit_one(MulScalar { value }, &[grad])?;
                backward.set(i, grad);
            }
        }
        Ok(())
    }
}

pub(super) const DIV_OR_ZERO: Entry = pointwise::binary_entry::<DivOrZero>(
    || {
        let fills = [Fill::Normal(1.0), Fill::Uniform(0.5, 3.0)];
        pointwise::binary_samples(&DivOrZero, fills)
    },
    || pointwise::rejects::<2>(&DivOrZero),
);

pub(super) const NORM_SLOPE: Entry = pointwise::binary_entry::<NormSlope>(
    || {
        let fills = [Fill::Uniform(0.5, 1.5), Fill::Uniform(1.5, 3.0)];
        let mut samples = pointwise::binary_samples(&NormSlope { p: 3.0 }, fills);
        samples.extend(pointwise::binary_samples(&NormSlope { p: 1.5 }, fills));
        // Powers take long.
        samples.retain(|sample| {
            let [x, y] = [0, 1].map(|i| sample.inputs[i].0.shape());
            x.broadcast(y).is_some_and(|both| both.numel() < 5000)
        });
        samples
    },
    || pointwise::rejects::<2>(&NormSlope { p: 3.0 }),
);
