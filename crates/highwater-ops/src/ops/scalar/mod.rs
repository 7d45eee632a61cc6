//! Arithmetic on a tensor and a number: `add_scalar`, `sub_scalar`, `mul_scalar`, `div_scalar`.
//!
//! One `F32` tensor of any shape and layout; the number is rounded to `f32` first, as PyTorch does,
//! and the result is correctly rounded. In place; one pass, one operation per element.

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::{Entry, Fill};
use highwater_graph::{Backward, OpError};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[ADD_SCALAR, SUB_SCALAR, MUL_SCALAR, DIV_SCALAR];

/// `x + value`. As `torch.add` of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AddScalar {
    /// What is added.
    pub value: f64,
}

/// `x - value`. As `torch.sub` of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SubScalar {
    /// What is taken away.
    pub value: f64,
}

/// `x * value`. As `torch.mul` by a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MulScalar {
    /// The factor.
    pub value: f64,
}

/// `x / value`: a division, not a product with the reciprocal. As `torch.div` by a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DivScalar {
    /// The divisor.
    pub value: f64,
}

pointwise_op!(AddScalar: 1, SubScalar: 1, MulScalar: 1, DivScalar: 1);

/// The gradient of a sum passes as it is.
fn pass(backward: &mut Backward<'_>) {
    if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
        backward.set(0, grad);
    }
}

/// The gradient of a product with a number, or of a quotient by one, is the gradient's.
fn apply(op: impl highwater_graph::Op, backward: &mut Backward<'_>) -> Result<(), OpError> {
    if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
        let grad = backward.emit_one(op, &[grad])?;
        backward.set(0, grad);
    }
    Ok(())
}

macro_rules! scalar {
    ($($op:ident, $name:literal, $flops:literal, $entry:ident of $sample:expr,
       |$x:ident, $value:ident| $result:expr, |$this:ident, $backward:ident| $emit:expr;)*) => {$(
        impl Pointwise<1> for $op {
            const NAME: &'static str = $name;
            const FLOPS: f64 = $flops;

            #[inline(always)]
            fn value<I: Isa>(&self, [$x]: [f32; 1]) -> f32 {
                let $value = self.value as f32;
                $result
            }

            fn exact(&self, [$x]: [f64; 1]) -> f64 {
                let $value = self.value;
                $result
            }

            fn hash(&self, hasher: &mut dyn Hasher) {
                hasher.write_u64(self.value.to_bits());
            }

            fn emit(&self, $backward: &mut Backward<'_>) -> Result<(), OpError> {
                let $this = *self;
                $emit
            }
        }

        const $entry: Entry = pointwise::unary_entry::<$op>(
            || pointwise::unary_samples(&$op { value: $sample }, Fill::Normal(1.0)),
            || pointwise::rejects::<1>(&$op { value: $sample }),
        );
    )*};
}

scalar! {
    AddScalar, "add_scalar", 1.0, ADD_SCALAR of 0.75,
        |x, value| x + value, |_this, backward| { pass(backward); Ok(()) };
    SubScalar, "sub_scalar", 1.0, SUB_SCALAR of 0.75,
        |x, value| x - value, |_this, backward| { pass(backward); Ok(()) };
    MulScalar, "mul_scalar", 1.0, MUL_SCALAR of -1.0 / 3.0,
        |x, value| x * value, |this, backward| apply(this, backward);
    DivScalar, "div_scalar", 4.0, DIV_SCALAR of -3.0,
        |x, value| x / value, |this, backward| apply(this, backward);
}
