//! The absolute value: `abs` and `abs_backward`.
//!
//! One `F32` tensor of any shape and layout; one pass; in place. Backward reads the input, and may
//! overwrite the gradient.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::{self, in_grad, no_slope};
use crate::{Entry, Fill};
use highwater_graph::{Backward, OpError};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ABS, ABS_BACKWARD];

/// `|x|`; NaN stays NaN. As `torch.abs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Abs;

/// `g sgn(x)` of inputs `g` and `x`, where `sgn(0) = 0`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AbsBackward;

pointwise_op!(Abs: 1, AbsBackward: 2);

impl Pointwise<1> for Abs {
    const NAME: &'static str = "abs";
    const FLOPS: f64 = 1.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        x.abs()
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x.abs()
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_input(backward, AbsBackward)
    }
}

impl Pointwise<2> for AbsBackward {
    const NAME: &'static str = "abs_backward";
    const FLOPS: f64 = 2.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, x]: [f32; 2]) -> f32 {
        g * (f32::from(u8::from(x > 0.0)) - f32::from(u8::from(x < 0.0)))
    }

    fn exact(&self, [g, x]: [f64; 2]) -> f64 {
        g * (f64::from(u8::from(x > 0.0)) - f64::from(u8::from(x < 0.0)))
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        no_slope(backward, 1)
    }
}

const ABS: Entry = pointwise::unary_entry::<Abs>(
    || pointwise::unary_samples(&Abs, Fill::Normal(1.0)),
    || pointwise::rejects::<1>(&Abs),
);

const ABS_BACKWARD: Entry = pointwise::binary_entry::<AbsBackward>(
    || pointwise::binary_samples(&AbsBackward, [Fill::Normal(1.0); 2]),
    || pointwise::rejects::<2>(&AbsBackward),
);
