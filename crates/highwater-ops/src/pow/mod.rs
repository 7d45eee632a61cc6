//! Powers: `pow_scalar`.
//!
//! Float tensors of any shape and layout; one pass; in place. Powers are within 0.51 ulp, so that those are
//! exact whose results are numbers of the dtype. Backward emits operations that exist, so that gradients have
//! gradients of their own.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]
#![expect(clippy::float_cmp, reason = "exponents are told apart exactly")]

use crate::pointwise::{self, Pointwise, no_slope, pointwise_op, set_reduced};
use crate::simd::Isa;
use crate::{Entry, Fill, Mul, MulScalar, Reciprocal, Rsqrt, Sample, Sqrt, Square, wide_math};
use highwater_graph::{Backward, OpError, Operand};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[POW_SCALAR];

/// `x^exponent`: 1 where the exponent is 0; NaN where `x` is below 0 and the exponent no whole number. As
/// `torch.pow(x, number)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowScalar {
    /// The exponent, rounded to `f32` for tensors that are not of `F64`.
    pub exponent: f64,
}

pointwise_op!(PowScalar: 1);

impl Pointwise<1> for PowScalar {
    const NAME: &'static str = "pow_scalar";
    const FLOPS: f64 = 30.0;

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
