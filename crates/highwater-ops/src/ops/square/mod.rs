//! The square: `square` and `square_backward`.
//!
//! One `F32` tensor of any shape and layout; one pass; in place. Backward reads the input, and may
//! overwrite the gradient.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::{self, in_grad, set_reduced};
use crate::{Entry, Fill};
use highwater_graph::{Autocast, Backward, OpError};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SQUARE, SQUARE_BACKWARD];

/// `x x`. As `torch.square`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Square;

/// `g 2 x` of inputs `g` and `x`.
#[derive(Debug, Clone, Copy)]
struct SquareBackward;

pointwise_op!(Square: 1, SquareBackward: 2);

impl Pointwise<1> for Square {
    const NAME: &'static str = "square";
    const FLOPS: f64 = 1.0;
    const AUTOCAST: Autocast = Autocast::Full;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        x * x
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x * x
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_input(backward, SquareBackward)
    }
}

impl Pointwise<2> for SquareBackward {
    const NAME: &'static str = "square_backward";
    const FLOPS: f64 = 2.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, x]: [f32; 2]) -> f32 {
        g * (x + x)
    }

    fn exact(&self, [g, x]: [f64; 2]) -> f64 {
        g * (2.0 * x)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        let (op, g) = (*self, backward.input(0));
        set_reduced(backward, 1, |backward, grad| {
            backward.emit_one(op, &[grad, g])
        })
    }
}

const SQUARE: Entry = pointwise::unary_entry::<Square>(
    || pointwise::unary_samples(&Square, Fill::Normal(1.0)),
    || pointwise::rejects::<1>(&Square),
);

const SQUARE_BACKWARD: Entry = pointwise::binary_entry::<SquareBackward>(
    || pointwise::binary_samples(&SquareBackward, [Fill::Normal(1.0); 2]),
    || pointwise::rejects::<2>(&SquareBackward),
);
