//! The smooth rectifier.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::math;
use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::kernels::wide_math;
use crate::ops::gradients::{self, in_grad, in_other};
use crate::ops::silu::sigmoid;
use crate::{Entry, Fill};
use highwater_graph::{Autocast, Backward, OpError};
use std::hash::Hasher;

/// `log(1 + e^(beta x)) / beta`, and `x` itself where `beta x` is above the threshold. As
/// `torch.nn.functional.softplus`; nothing overflows, and small results keep their digits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Softplus {
    /// How sharp the bend is; 1 in PyTorch.
    pub beta: f64,
    /// From where on the function is a line; 20 in PyTorch.
    pub threshold: f64,
}

/// `g` times the first or second derivative of [`Softplus`] at `x`, of inputs `g` and `x`. The second has no
/// gradient in `x`.
#[derive(Debug, Clone, Copy)]
struct SoftplusBackward {
    softplus: Softplus,
    second: bool,
}

pointwise_op!(Softplus: 1, SoftplusBackward: 2);

impl Pointwise<1> for Softplus {
    const NAME: &'static str = "softplus";
    const FLOPS: f64 = 35.0;
    const AUTOCAST: Autocast = Autocast::Full;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        let (beta, threshold) = (self.beta as f32, self.threshold as f32);
        let z = x * beta;
        let tail = wide_math::log1p(math::exp::<I>(-z.abs()));
        let bent = (if z > 0.0 { z + tail } else { tail }) / beta;
        if z > threshold { x } else { bent }
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        let z = x * self.beta;
        if z > self.threshold {
            return x;
        }
        let tail = (-z.abs()).exp().ln_1p();
        (if z > 0.0 { z + tail } else { tail }) / self.beta
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.beta.to_bits());
        hasher.write_u64(self.threshold.to_bits());
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let op = SoftplusBackward {
            softplus: *self,
            second: false,
        };
        gradients::from_input(backward, op)
    }
}

impl Pointwise<2> for SoftplusBackward {
    const NAME: &'static str = "softplus_backward";
    const FLOPS: f64 = 15.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, x]: [f32; 2]) -> f32 {
        let (beta, threshold) = (self.softplus.beta as f32, self.softplus.threshold as f32);
        let z = x * beta;
        let s = math::sigmoid::<I>(z);
        // 1 - s is a sigmoid too, of which nothing is lost.
        let second = beta * s * math::sigmoid::<I>(-z);
        let (bent, line) = if self.second {
            (g * second, 0.0)
        } else {
            (g * s, g)
        };
        if z > threshold { line } else { bent }
    }

    fn exact(&self, [g, x]: [f64; 2]) -> f64 {
        let z = x * self.softplus.beta;
        match (self.second, z > self.softplus.threshold) {
            (false, false) => g * sigmoid(z),
            (false, true) => g,
            (true, false) => g * self.softplus.beta * sigmoid(z) * sigmoid(-z),
            (true, true) => 0.0,
        }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        Pointwise::hash(&self.softplus, hasher);
        hasher.write_u8(self.second.into());
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        if self.second && backward.needs(1) {
            return Err(OpError::NotDifferentiable { op: Self::NAME });
        }
        in_grad(backward, *self)?;
        let second = Self {
            second: true,
            ..*self
        };
        in_other(backward, |backward, product, x| {
            backward.emit_one(second, &[product, x])
        })
    }
}

const BENT: Softplus = Softplus {
    beta: 2.0,
    threshold: 5.0,
};

const fn derivative(second: bool) -> SoftplusBackward {
    let softplus = BENT;
    SoftplusBackward { softplus, second }
}

pub(super) const FORWARD: Entry = pointwise::unary_entry::<Softplus>(
    || pointwise::unary_samples(&BENT, Fill::Normal(2.0)),
    || pointwise::rejects::<1>(&BENT),
);

pub(super) const BACKWARD: Entry = pointwise::binary_entry::<SoftplusBackward>(
    || {
        let fills = [Fill::Normal(1.0), Fill::Normal(2.0)];
        let mut samples = pointwise::binary_samples(&derivative(false), fills);
        let second = pointwise::binary_samples(&derivative(true), fills);
        samples.extend(second.into_iter().take(3));
        samples
    },
    || pointwise::rejects::<2>(&derivative(false)),
);
