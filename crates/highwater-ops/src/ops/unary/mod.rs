//! Functions of one element: `relu`, `tanh`, `exp`, `log`, `sqrt`, `sigmoid`, `neg`.
//!
//! Each takes one `F32` tensor of any shape and layout, computes in `f32`, may work in place, and
//! costs one pass. Where the derivative can be had from the output, backward reads that, so that
//! the input need not be kept.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

mod backward;

use crate::kernels::math;
use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients;
use crate::{Entry, Fill};
pub(crate) use backward::SigmoidBackward;
use backward::{
    RELU_BACKWARD, ReluBackward, SIGMOID_BACKWARD, SQRT_BACKWARD, SqrtBackward, TANH_BACKWARD,
    TanhBackward,
};
use highwater_graph::{Autocast, Backward, OpError};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    RELU,
    TANH,
    EXP,
    LOG,
    SQRT,
    SIGMOID,
    NEG,
    RELU_BACKWARD,
    TANH_BACKWARD,
    SQRT_BACKWARD,
    SIGMOID_BACKWARD,
];

/// `max(x, 0)`; NaN stays NaN. As `torch.relu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Relu;

/// The hyperbolic tangent, within 2.5 ulp. As `torch.tanh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tanh;

/// `e^x`, within 1.5 ulp. As `torch.exp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exp;

/// The natural logarithm, within 1 ulp. As `torch.log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Log;

/// The square root, correctly rounded. As `torch.sqrt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sqrt;

/// `1 / (1 + e^-x)`, within 3 ulp. As `torch.sigmoid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sigmoid;

/// `-x`. As `torch.neg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Neg;

pointwise_op!(Relu: 1, Tanh: 1, Exp: 1, Log: 1, Sqrt: 1, Sigmoid: 1, Neg: 1);

impl Pointwise<1> for Relu {
    const NAME: &'static str = "relu";
    const FLOPS: f64 = 1.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        if x <= 0.0 { 0.0 } else { x }
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        // NaN stays NaN.
        if x < 0.0 { 0.0 } else { x }
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_output(backward, ReluBackward)
    }
}

impl Pointwise<1> for Tanh {
    const NAME: &'static str = "tanh";
    const FLOPS: f64 = 10.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        math::tanh::<I>(x)
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x.tanh()
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_output(backward, TanhBackward)
    }
}

impl Pointwise<1> for Exp {
    const NAME: &'static str = "exp";
    const FLOPS: f64 = 10.0;
    const AUTOCAST: Autocast = Autocast::Full;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        math::exp::<I>(x)
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x.exp()
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_output(backward, crate::Mul)
    }
}

impl Pointwise<1> for Log {
    const NAME: &'static str = "log";
    const FLOPS: f64 = 10.0;
    const AUTOCAST: Autocast = Autocast::Full;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        math::log::<I>(x)
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x.ln()
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_input(backward, crate::Div)
    }
}

impl Pointwise<1> for Sqrt {
    const NAME: &'static str = "sqrt";
    const FLOPS: f64 = 4.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        x.sqrt()
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x.sqrt()
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_output(backward, SqrtBackward)
    }
}

impl Pointwise<1> for Sigmoid {
    const NAME: &'static str = "sigmoid";
    const FLOPS: f64 = 10.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        math::sigmoid::<I>(x)
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_output(backward, SigmoidBackward)
    }
}

impl Pointwise<1> for Neg {
    const NAME: &'static str = "neg";
    const FLOPS: f64 = 1.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        -x
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        -x
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_grad(backward, Neg)
    }
}

macro_rules! entries {
    ($($entry:ident: $op:ident on $fill:expr),* $(,)?) => {$(
        const $entry: Entry = pointwise::unary_entry::<$op>(
            || pointwise::unary_samples(&$op, $fill),
            || pointwise::rejects::<1>(&$op),
        );
    )*};
}

entries! {
    RELU: Relu on Fill::Normal(1.0),
    TANH: Tanh on Fill::Normal(2.0),
    EXP: Exp on Fill::Uniform(-20.0, 1.0),
    LOG: Log on Fill::Uniform(0.01, 50.0),
    SQRT: Sqrt on Fill::Uniform(0.01, 50.0),
    SIGMOID: Sigmoid on Fill::Normal(3.0),
    NEG: Neg on Fill::Normal(1.0),
}
