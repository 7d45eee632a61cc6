//! The exponential linear unit.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::math;
use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::kernels::wide_math;
use crate::ops::gradients::{self, in_grad, in_other};
use crate::{Entry, Fill};
use highwater_graph::{Backward, OpError};
use std::hash::Hasher;

/// `x` above zero, else `alpha (e^x - 1)` (Clevert, Unterthiner and Hochreiter, 2015), within 1 ulp. As
/// `torch.nn.functional.elu`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Elu {
    /// What the function falls to, with a minus; 1 in PyTorch.
    pub alpha: f64,
}

/// `g` times the derivative of [`Elu`] of some order at `x`, of inputs `g` and `x`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EluBackward {
    pub(crate) alpha: f64,
    pub(crate) order: u32,
}

pointwise_op!(Elu: 1, EluBackward: 2);

impl Pointwise<1> for Elu {
    const NAME: &'static str = "elu";
    const FLOPS: f64 = 15.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        let below = wide_math::expm1(x) * self.alpha as f32;
        if x > 0.0 { x } else { below }
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        if x > 0.0 { x } else { x.exp_m1() * self.alpha }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.alpha.to_bits());
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let op = EluBackward {
            alpha: self.alpha,
            order: 1,
        };
        gradients::from_input(backward, op)
    }
}

impl Pointwise<2> for EluBackward {
    const NAME: &'static str = "elu_backward";
    const FLOPS: f64 = 12.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, x]: [f32; 2]) -> f32 {
        let below = g * (self.alpha as f32 * math::exp::<I>(x));
        let above = if self.order == 1 { g } else { 0.0 };
        if x <= 0.0 { below } else { above }
    }

    fn exact(&self, [g, x]: [f64; 2]) -> f64 {
        let above = if self.order == 1 { g } else { 0.0 };
        if x <= 0.0 {
            g * self.alpha * x.exp()
        } else {
            above
        }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.alpha.to_bits());
        hasher.write_u32(self.order);
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        let next = Self {
            order: self.order + 1,
            ..*self
        };
        in_other(backward, |backward, product, x| {
            backward.emit_one(next, &[product, x])
        })
    }
}

const ALPHA: f64 = 0.75;

pub(super) const FORWARD: Entry = pointwise::unary_entry::<Elu>(
    || pointwise::unary_samples(&Elu { alpha: ALPHA }, Fill::Normal(2.0)),
    || pointwise::rejects::<1>(&Elu { alpha: ALPHA }),
);

const fn of_order(order: u32) -> EluBackward {
    let alpha = ALPHA;
    EluBackward { alpha, order }
}

pub(super) const BACKWARD: Entry = pointwise::binary_entry::<EluBackward>(
    || {
        let fills = [Fill::Normal(1.0), Fill::Normal(2.0)];
        let mut samples = pointwise::binary_samples(&of_order(1), fills);
        let second = pointwise::binary_samples(&of_order(2), fills);
        samples.extend(second.into_iter().take(3));
        samples
    },
    || pointwise::rejects::<2>(&of_order(1)),
);

/// What [`Elu`] was given where it answered `y`; `y` above `-alpha`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EluInverse {
    pub(crate) alpha: f64,
}

pointwise_op!(EluInverse: 1);

impl Pointwise<1> for EluInverse {
    const NAME: &'static str = "elu_inverse";
    const FLOPS: f64 = 20.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [y]: [f32; 1]) -> f32 {
        let below = wide_math::log1p(y / self.alpha as f32);
        if y > 0.0 { y } else { below }
    }

    fn exact(&self, [y]: [f64; 1]) -> f64 {
        if y > 0.0 { y } else { (y / self.alpha).ln_1p() }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.alpha.to_bits());
    }

    /// Only gradients read it.
    fn emit(&self, _backward: &mut Backward<'_>) -> Result<(), OpError> {
        Err(OpError::NotDifferentiable { op: Self::NAME })
    }
}

pub(super) const INVERSE: Entry = pointwise::unary_entry::<EluInverse>(
    || pointwise::unary_samples(&EluInverse { alpha: ALPHA }, Fill::Uniform(-0.7, 3.0)),
    || pointwise::rejects::<1>(&EluInverse { alpha: ALPHA }),
);
