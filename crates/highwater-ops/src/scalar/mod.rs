//! Arithmetic on a tensor and a number: `add_scalar`, `mul_scalar`.
//!
//! One `F32` tensor of any shape and layout; the number is rounded to `f32` first, as PyTorch does.
//! In place; one pass, one operation per element. Subtraction and division by a number are these,
//! too.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::pointwise::{self, Pointwise, pointwise_op};
use crate::simd::Isa;
use crate::{Entry, Fill};
use highwater_graph::{Backward, OpError};
use std::hash::Hasher;

/// `x + value`. As `torch.add` of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AddScalar {
    /// What is added.
    pub value: f64,
}

/// `x * value`. As `torch.mul` by a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MulScalar {
    /// The factor.
    pub value: f64,
}

pointwise_op!(AddScalar: 1, MulScalar: 1);

impl Pointwise<1> for AddScalar {
    const NAME: &'static str = "add_scalar";
    const FLOPS: f64 = 1.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        x + self.value as f32
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x + self.value
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.value.to_bits());
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
            backward.set(0, grad);
        }
        Ok(())
    }
}

impl Pointwise<1> for MulScalar {
    const NAME: &'static str = "mul_scalar";
    const FLOPS: f64 = 1.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        x * self.value as f32
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x * self.value
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.value.to_bits());
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if let Some(grad) = backward.grad(0).filter(|_| backward.needs(0)) {
            let grad = backward.emit_one(*self, &[grad])?;
            backward.set(0, grad);
        }
        Ok(())
    }
}

pub(crate) const ADD_SCALAR: Entry = pointwise::unary_entry::<AddScalar>(
    || pointwise::unary_samples(&AddScalar { value: 0.75 }, Fill::Normal(1.0)),
    || pointwise::rejects::<1>(&AddScalar { value: 0.75 }),
);

pub(crate) const MUL_SCALAR: Entry = pointwise::unary_entry::<MulScalar>(
    || pointwise::unary_samples(&MulScalar { value: -1.0 / 3.0 }, Fill::Normal(1.0)),
    || pointwise::rejects::<1>(&MulScalar { value: 2.0 }),
);
