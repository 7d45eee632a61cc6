//! The sigmoid linear unit: `silu` and `silu_backward`.
//!
//! `x sigmoid(x)` (Elfwing, Uchibe and Doya, 2018), also called swish. As `torch.nn.functional.silu`.
//! One float tensor of any shape and layout; computes in `f32`; one pass; in place. Backward reads the
//! input, and may overwrite the gradient.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::math;
use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::{self, in_grad, in_other};
use crate::ops::unary::SigmoidBackward;
use crate::{AddScalar, Entry, Fill, Mul, MulScalar, Sigmoid};
use highwater_graph::{Backward, OpError, Operand};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SILU, SILU_BACKWARD];

/// `x sigmoid(x)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Silu;

/// `g d(x sigmoid(x)) / dx` of inputs `g` and `x`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SiluBackward;

pointwise_op!(Silu: 1, SiluBackward: 2);

impl Pointwise<1> for Silu {
    const NAME: &'static str = "silu";
    const FLOPS: f64 = 13.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        x * math::sigmoid::<I>(x)
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x * sigmoid(x)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_input(backward, SiluBackward)
    }
}

impl Pointwise<2> for SiluBackward {
    const NAME: &'static str = "silu_backward";
    const FLOPS: f64 = 17.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, x]: [f32; 2]) -> f32 {
        g * slope::<I>(x, math::sigmoid::<I>(x))
    }

    fn exact(&self, [g, x]: [f64; 2]) -> f64 {
        g * exact_slope(x)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        in_other(backward, curved)
    }
}

/// Emits a factor times the second derivative at `x`: `s (1 - s) (2 + x (1 - 2 s))`, where `s` is the sigmoid.
pub(crate) fn curved(
    backward: &mut Backward<'_>,
    factor: Operand,
    x: Operand,
) -> Result<Operand, OpError> {
    let s = backward.emit_one(Sigmoid, std::slice::from_ref(&x))?;
    let twice = backward.emit_one(MulScalar { value: -2.0 }, std::slice::from_ref(&s))?;
    let slope = backward.emit_one(AddScalar { value: 1.0 }, &[twice])?;
    let slope = backward.emit_one(Mul, &[slope, x])?;
    let slope = backward.emit_one(AddScalar { value: 2.0 }, &[slope])?;
    let product = backward.emit_one(Mul, &[factor, slope])?;
    backward.emit_one(SigmoidBackward, &[product, s])
}

/// The derivative at `x`, whose sigmoid is given.
#[inline(always)]
pub(crate) fn slope<I: Isa>(x: f32, sigmoid: f32) -> f32 {
    // Far below zero x (1 - s) is large, and s is 0.
    I::fma(x * (1.0 - sigmoid), sigmoid, sigmoid)
}

/// The sigmoid, in `f64`.
pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The derivative at `x`, in `f64`.
pub(crate) fn exact_slope(x: f64) -> f64 {
    sigmoid(x) * (1.0 + x * sigmoid(-x))
}

const SILU: Entry = pointwise::unary_entry::<Silu>(
    || pointwise::unary_samples(&Silu, Fill::Normal(3.0)),
    || pointwise::rejects::<1>(&Silu),
);

const SILU_BACKWARD: Entry = pointwise::binary_entry::<SiluBackward>(
    || {
        let fills = [Fill::Normal(1.0), Fill::Normal(3.0)];
        pointwise::of_many_nodes(pointwise::binary_samples(&SiluBackward, fills))
    },
    || pointwise::rejects::<2>(&SiluBackward),
);
