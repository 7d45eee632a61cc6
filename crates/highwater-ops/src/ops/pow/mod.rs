//! Powers: `pow` and `pow_scalar`.
//!
//! Float tensors of any shape and layout; one pass; in place. Powers are within 0.51 ulp, so that those are
//! exact whose results are numbers of the dtype. Backward emits operations that exist, so that gradients have
//! gradients of their own.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]
#![expect(clippy::float_cmp, reason = "exponents are told apart exactly")]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::kernels::wide_math;
use crate::ops::gradients::{self, no_slope, set_reduced};
use crate::{
    Entry, Equal, Fill, GreaterEqual, Log, LogicalAnd, Mul, MulScalar, Reciprocal, Rsqrt, Sample,
    Sqrt, Square, SubScalar, Where,
};
use highwater_graph::{Autocast, Backward, OpError, Operand, Promotion};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[POW, POW_SCALAR];

/// `x^exponent`: 1 where the exponent is 0; NaN where `x` is below 0 and the exponent no whole number. As
/// `torch.pow(x, number)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowScalar {
    /// The exponent, rounded to `f32` for tensors that are not of `F64`.
    pub exponent: f64,
}

/// `a^b`: 1 where `b` is 0; NaN where `a` is below 0 and `b` no whole number. As `torch.pow(a, b)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pow;

pointwise_op!(Pow: 2, PowScalar: 1);

impl Pointwise<2> for Pow {
    const NAME: &'static str = "pow";
    const FLOPS: f64 = 30.0;
    const AUTOCAST: Autocast = Autocast::Full;
    const PROMOTION: Option<Promotion> = Some(Promotion::ALL);

    #[inline(always)]
    fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
        wide_math::pow(a, b)
    }

    fn exact(&self, [a, b]: [f64; 2]) -> f64 {
        a.powf(b)
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let (a, b) = (backward.input(0), backward.input(1));
        // Where the exponent is 0 the base does not matter, and 0^-1 must not be made.
        set_reduced(backward, 0, |backward, grad| {
            let less = backward.emit_one(SubScalar { value: 1.0 }, std::slice::from_ref(&b))?;
            let power = backward.emit_one(Self, &[a.clone(), less])?;
            let slope = backward.emit_one(Mul, &[power, b.clone()])?;
            let grad = backward.emit_one(Mul, &[grad, slope])?;
            let zero = gradients::zero(backward, b.spec.dtype)?;
            let constant = backward.emit_one(Equal, &[b.clone(), zero.clone()])?;
            backward.emit_one(Where, &[constant, zero, grad])
        })?;
        // The power of 0 stays 0 as long as the exponent is not below.
        set_reduced(backward, 1, |backward, grad| {
            let log = backward.emit_one(Log, std::slice::from_ref(&a))?;
            let power = backward.output(0);
            let slope = backward.emit_one(Mul, &[power, log])?;
            let grad = backward.emit_one(Mul, &[grad, slope])?;
            let zero = gradients::zero(backward, a.spec.dtype)?;
            let of_zero = backward.emit_one(Equal, &[a.clone(), zero.clone()])?;
            let at_least = backward.emit_one(GreaterEqual, &[b.clone(), zero.clone()])?;
            let constant = backward.emit_one(LogicalAnd, &[of_zero, at_least])?;
            backward.emit_one(Where, &[constant, zero, grad])
        })
    }
}

const POW: Entry = pointwise::binary_entry::<Pow>(
    || {
        let fills = [Fill::Uniform(0.3, 3.0), Fill::Normal(1.5)];
        pointwise::of_many_nodes(pointwise::binary_samples(&Pow, fills))
    },
    || pointwise::rejects::<2>(&Pow),
);

impl Pointwise<1> for PowScalar {
    const NAME: &'static str = "pow_scalar";
    const FLOPS: f64 = 30.0;
    const AUTOCAST: Autocast = Autocast::Full;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        wide_math::pow(x, self.exponent as f32)
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x.powf(self.exponent)
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.exponent.to_bits());
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let value = self.exponent;
        if value == 0.0 {
            return no_slope(backward, 0);
        }
        set_reduced(backward, 0, |backward, grad| {
            if value == 1.0 {
                return Ok(grad);
            }
            let slope = power_of_input(backward, value - 1.0)?;
            let grad = backward.emit_one(Mul, &[grad, slope])?;
            backward.emit_one(MulScalar { value }, &[grad])
        })
    }
}

/// A power of the input; the usual ones by what is made for them, as in PyTorch.
fn power_of_input(backward: &mut Backward<'_>, exponent: f64) -> Result<Operand, OpError> {
    let x = [backward.input(0)];
    if exponent == 1.0 {
        let [x] = x;
        Ok(x)
    } else if exponent == 2.0 {
        backward.emit_one(Square, &x)
    } else if exponent == 0.5 {
        backward.emit_one(Sqrt, &x)
    } else if exponent == -0.5 {
        backward.emit_one(Rsqrt, &x)
    } else if exponent == -1.0 {
        backward.emit_one(Reciprocal, &x)
    } else {
        backward.emit_one(PowScalar { exponent }, &x)
    }
}

const POW_SCALAR: Entry = pointwise::unary_entry::<PowScalar>(
    || {
        let of = |(exponent, fill)| pointwise::unary_samples(&PowScalar { exponent }, fill);
        let (any, positive) = (Fill::Normal(1.5), Fill::Uniform(0.3, 5.0));
        let cases = [(3.0, any), (2.0, any), (1.0, any), (0.0, any)];
        let cases = cases
            .into_iter()
            .chain([(-1.5, positive), (0.25, positive)]);
        cases.flat_map(of).collect::<Vec<Sample>>()
    },
    || pointwise::rejects::<1>(&PowScalar { exponent: 3.0 }),
);
