//! The rectifier that lets something through below zero.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::ops::gradients::{self, in_grad};
use crate::{Entry, Fill};
use highwater_graph::{Backward, OpError};
use std::hash::Hasher;

/// `x` above zero, else `slope x` (Maas et al., 2013). As `torch.nn.functional.leaky_relu`.
///
/// Where the slope is above 0, backward reads the output, so that the input need not be kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeakyRelu {
    /// What numbers below zero are multiplied by; 0.01 in PyTorch.
    pub slope: f64,
}

/// `g` where `x > 0`, else `slope g`, of inputs `g` and `x`. Differentiable in `g`; in `x` its gradient is
/// zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeakyReluBackward {
    pub(crate) slope: f64,
}

pointwise_op!(LeakyRelu: 1, LeakyReluBackward: 2);

impl Pointwise<1> for LeakyRelu {
    const NAME: &'static str = "leaky_relu";
    const FLOPS: f64 = 2.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        if x > 0.0 { x } else { x * self.slope as f32 }
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        if x > 0.0 { x } else { x * self.slope }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.slope.to_bits());
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let op = LeakyReluBackward { slope: self.slope };
        if self.slope > 0.0 {
            gradients::from_output(backward, op)
        } else {
            gradients::from_input(backward, op)
        }
    }
}

impl Pointwise<2> for LeakyReluBackward {
    const NAME: &'static str = "leaky_relu_backward";
    const FLOPS: f64 = 2.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, x]: [f32; 2]) -> f32 {
        if x > 0.0 { g } else { g * self.slope as f32 }
    }

    fn exact(&self, [g, x]: [f64; 2]) -> f64 {
        if x > 0.0 { g } else { g * self.slope }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.slope.to_bits());
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        gradients::no_slope(backward, 1)
    }
}

const SLOPES: [f64; 2] = [0.01, -0.5];

pub(super) const FORWARD: Entry = pointwise::unary_entry::<LeakyRelu>(
    || {
        let of = |slope| pointwise::unary_samples(&LeakyRelu { slope }, Fill::Normal(1.0));
        SLOPES.into_iter().flat_map(of).collect()
    },
    || pointwise::rejects::<1>(&LeakyRelu { slope: 0.01 }),
);

pub(super) const BACKWARD: Entry = pointwise::binary_entry::<LeakyReluBackward>(
    || pointwise::binary_samples(&LeakyReluBackward { slope: 0.01 }, [Fill::Normal(1.0); 2]),
    || pointwise::rejects::<2>(&LeakyReluBackward { slope: 0.01 }),
);
