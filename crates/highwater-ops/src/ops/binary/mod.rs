//! Arithmetic on two tensors: `add`, `sub`, `mul`, `div`.
//!
//! Inputs are of one float dtype, or of `I64` but for `div`, of any layouts whose shapes broadcast by PyTorch's
//! rule; results are correctly rounded, whole ones wrap around, as `torch.add` and its sisters. Any input that is like the output may be overwritten.
//! One pass, one operation per element. Backward sums gradients over repeated elements with
//! [`SumTo`](crate::SumTo).

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::{reduce_to, set_reduced};
use crate::{Entry, Fill};
use highwater_graph::{Autocast, Backward, OpError, Operand, Promotion};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ADD, SUB, MUL, DIV];

/// `a + b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Add;

/// `a - b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sub;

/// `a * b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mul;

/// `a / b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Div;

pointwise_op!(Add: 2, Sub: 2, Mul: 2, Div: 2);

/// The gradient times an input, in the output's shape.
fn times_input(backward: &mut Backward<'_>, grad: &Operand, i: usize) -> Result<Operand, OpError> {
    let mut input = backward.input(i);
    if backward.is_one(grad)
        && let Some(layout) = input.spec.layout.expand(grad.shape())
    {
        input.requires_grad &= backward.is_recorded();
        return Ok(input.with_layout(layout));
    }
    backward.emit_one(Mul, &[grad.clone(), input])
}

impl Pointwise<2> for Add {
    const NAME: &'static str = "add";
    const FLOPS: f64 = 1.0;
    const WHOLE: bool = true;
    const AUTOCAST: Autocast = Autocast::Widest;
    const PROMOTION: Option<Promotion> = Some(Promotion::ALL);

    #[inline(always)]
    fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
        a + b
    }

    fn exact(&self, [a, b]: [f64; 2]) -> f64 {
        a + b
    }

    fn whole(&self, [a, b]: [i64; 2]) -> i64 {
        a.wrapping_add(b)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        set_reduced(backward, 0, |_, grad| Ok(grad))?;
        set_reduced(backward, 1, |_, grad| Ok(grad))
    }
}

impl Pointwise<2> for Sub {
    const NAME: &'static str = "sub";
    const FLOPS: f64 = 1.0;
    const WHOLE: bool = true;
    const AUTOCAST: Autocast = Autocast::Widest;
    const PROMOTION: Option<Promotion> = Some(Promotion::ALL);

    #[inline(always)]
    fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
        a - b
    }

    fn exact(&self, [a, b]: [f64; 2]) -> f64 {
        a - b
    }

    fn whole(&self, [a, b]: [i64; 2]) -> i64 {
        a.wrapping_sub(b)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        set_reduced(backward, 0, |_, grad| Ok(grad))?;
        // Summed first: there is less to negate then.
        let shape = backward.input(1).shape().clone();
        set_reduced(backward, 1, |backward, grad| {
            let grad = reduce_to(backward, grad, &shape)?;
            backward.emit_one(crate::Neg, &[grad])
        })
    }
}

impl Pointwise<2> for Mul {
    const NAME: &'static str = "mul";
    const FLOPS: f64 = 1.0;
    const WHOLE: bool = true;
    const AUTOCAST: Autocast = Autocast::Widest;
    const PROMOTION: Option<Promotion> = Some(Promotion::ALL);

    #[inline(always)]
    fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
        a * b
    }

    fn exact(&self, [a, b]: [f64; 2]) -> f64 {
        a * b
    }

    fn whole(&self, [a, b]: [i64; 2]) -> i64 {
        a.wrapping_mul(b)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        set_reduced(backward, 0, |backward, grad| {
            times_input(backward, &grad, 1)
        })?;
        set_reduced(backward, 1, |backward, grad| {
            times_input(backward, &grad, 0)
        })
    }
}

impl Pointwise<2> for Div {
    const NAME: &'static str = "div";
    const FLOPS: f64 = 4.0;
    const AUTOCAST: Autocast = Autocast::Widest;
    const PROMOTION: Option<Promotion> = Some(Promotion {
        to_floats: true,
        ..Promotion::ALL
    });

    #[inline(always)]
    fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
        a / b
    }

    fn exact(&self, [a, b]: [f64; 2]) -> f64 {
        a / b
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (b, quotient) = (backward.input(1), backward.output(0));
        set_reduced(backward, 0, |backward, grad| {
            backward.emit_one(Div, &[grad, b.clone()])
        })?;
        // d(a / b) / db = -(a / b) / b, in PyTorch's order; negated last, where there is less of it.
        set_reduced(backward, 1, |backward, grad| {
            let slope = backward.emit_one(Div, &[quotient, b.clone()])?;
            let grad = backward.emit_one(Mul, &[grad, slope])?;
            let grad = reduce_to(backward, grad, b.shape())?;
            backward.emit_one(crate::Neg, &[grad])
        })
    }
}

macro_rules! entries {
    ($($entry:ident: $op:ident on $fill:expr),* $(,)?) => {$(
        const $entry: Entry = pointwise::binary_entry::<$op>(
            || {
                let mut samples = pointwise::binary_samples(&$op, [Fill::Normal(1.0), $fill]);
                if <$op as Pointwise<2>>::WHOLE {
                    samples.extend(pointwise::whole_samples::<2>(&$op));
                }
                samples
            },
            || pointwise::rejects::<2>(&$op),
        );
    )*};
}

entries! {
    ADD: Add on Fill::Normal(1.0),
    SUB: Sub on Fill::Normal(1.0),
    MUL: Mul on Fill::Normal(1.0),
    DIV: Div on Fill::Uniform(0.5, 3.0),
}
