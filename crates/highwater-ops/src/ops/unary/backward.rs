//! Gradients of functions whose derivative follows from their output `y`: inputs are the gradient
//! `g` of the output, which may be overwritten, and `y`. They have gradients in both.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::{in_grad, in_other, no_slope};
use crate::{AddScalar, Div, Entry, Fill, Mul, MulScalar, Neg};
use highwater_graph::{Backward, OpError};

/// `g` where `y > 0`, else 0. As PyTorch's `threshold_backward`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReluBackward;

/// `g (1 - y^2)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TanhBackward;

/// `g / (2 y)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SqrtBackward;

/// `g (1 - y) y`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SigmoidBackward;

pointwise_op!(ReluBackward: 2, TanhBackward: 2, SqrtBackward: 2, SigmoidBackward: 2);

impl Pointwise<2> for ReluBackward {
    const NAME: &'static str = "relu_backward";
    const FLOPS: f64 = 1.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, y]: [f32; 2]) -> f32 {
        if y <= 0.0 { 0.0 } else { g }
    }

    fn exact(&self, [g, y]: [f64; 2]) -> f64 {
        if y <= 0.0 { 0.0 } else { g }
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        no_slope(backward, 1)
    }
}

impl Pointwise<2> for TanhBackward {
    const NAME: &'static str = "tanh_backward";
    const FLOPS: f64 = 3.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, y]: [f32; 2]) -> f32 {
        g * I::fma(-y, y, 1.0)
    }

    fn exact(&self, [g, y]: [f64; 2]) -> f64 {
        g * (1.0 - y * y)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        in_other(backward, |backward, product, y| {
            let product = backward.emit_one(Mul, &[product, y])?;
            backward.emit_one(MulScalar { value: -2.0 }, &[product])
        })
    }
}

impl Pointwise<2> for SqrtBackward {
    const NAME: &'static str = "sqrt_backward";
    const FLOPS: f64 = 4.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, y]: [f32; 2]) -> f32 {
        g / (y + y)
    }

    fn exact(&self, [g, y]: [f64; 2]) -> f64 {
        g / (2.0 * y)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        in_other(backward, |backward, product, y| {
            let slope = backward.emit_one(Self, &[product, y.clone()])?;
            let slope = backward.emit_one(Div, &[slope, y])?;
            backward.emit_one(Neg, &[slope])
        })
    }
}

impl Pointwise<2> for SigmoidBackward {
    const NAME: &'static str = "sigmoid_backward";
    const FLOPS: f64 = 3.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, y]: [f32; 2]) -> f32 {
        g * (1.0 - y) * y
    }

    fn exact(&self, [g, y]: [f64; 2]) -> f64 {
        g * y * (1.0 - y)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        in_other(backward, |backward, product, y| {
            let twice = backward.emit_one(MulScalar { value: -2.0 }, &[y])?;
            let slope = backward.emit_one(AddScalar { value: 1.0 }, &[twice])?;
            backward.emit_one(Mul, &[product, slope])
        })
    }
}

macro_rules! entries {
    ($($entry:ident: $op:ident on $fill:expr),* $(,)?) => {$(
        pub(crate) const $entry: Entry = pointwise::binary_entry::<$op>(
            || pointwise::binary_samples(&$op, [Fill::Normal(1.0), $fill]),
            || pointwise::rejects::<2>(&$op),
        );
    )*};
}

entries! {
    RELU_BACKWARD: ReluBackward on Fill::Normal(1.0),
    TANH_BACKWARD: TanhBackward on Fill::Uniform(-1.0, 1.0),
    SQRT_BACKWARD: SqrtBackward on Fill::Uniform(0.1, 7.0),
    SIGMOID_BACKWARD: SigmoidBackward on Fill::Uniform(0.0, 1.0),
}
