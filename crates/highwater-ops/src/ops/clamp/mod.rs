//! Numbers held between two bounds: `clamp` and `clamp_backward`.
//!
//! One float tensor of any shape and layout; one pass; in place. Backward reads the input, and may overwrite
//! the gradient.

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

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[CLAMP, CLAMP_BACKWARD];

/// `min(max(x, least), most)`; NaN stays NaN, and all is `most` where that is below `least`. As
/// `torch.clamp`. The gradient passes strictly between the bounds alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clamp {
    /// The lower bound, if there is one.
    pub min: Option<f64>,
    /// The upper bound, if there is one.
    pub max: Option<f64>,
}

/// `g` where `x` is between the bounds, else 0, of inputs `g` and `x`. Differentiable in `g`; in `x` its
/// gradient is zero.
#[derive(Debug, Clone, Copy)]
struct ClampBackward(Clamp);

pointwise_op!(Clamp: 1, ClampBackward: 2);

impl Pointwise<1> for Clamp {
    const NAME: &'static str = "clamp";
    const FLOPS: f64 = 2.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        let least = self.min.map_or(f32::NEG_INFINITY, |min| min as f32);
        let most = self.max.map_or(f32::INFINITY, |max| max as f32);
        // A bound that is NaN makes everything NaN.
        let y = if (x >= least) | x.is_nan() { x } else { least };
        if (y <= most) | y.is_nan() { y } else { most }
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        let y = self.min.map_or(x, |min| if x < min { min } else { x });
        self.max.map_or(y, |max| if y > max { max } else { y })
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        for bound in [self.min, self.max] {
            hasher.write_u64(bound.map_or(0, f64::to_bits));
            hasher.write_u8(bound.is_some().into());
        }
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        gradients::from_input(backward, ClampBackward(*self))
    }
}

impl Pointwise<2> for ClampBackward {
    const NAME: &'static str = "clamp_backward";
    const FLOPS: f64 = 2.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, x]: [f32; 2]) -> f32 {
        let above = self.0.min.is_none_or(|min| x > min as f32);
        let below = self.0.max.is_none_or(|max| x < max as f32);
        if above & below { g } else { 0.0 }
    }

    fn exact(&self, [g, x]: [f64; 2]) -> f64 {
        let above = self.0.min.is_none_or(|min| x > min);
        let below = self.0.max.is_none_or(|max| x < max);
        if above && below { g } else { 0.0 }
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        Pointwise::hash(&self.0, hasher);
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        gradients::no_slope(backward, 1)
    }
}

const SAMPLES: [Clamp; 3] = [
    Clamp {
        min: Some(-0.5),
        max: Some(0.75),
    },
    Clamp {
        min: Some(0.1),
        max: None,
    },
    Clamp {
        min: None,
        max: Some(-0.1),
    },
];

const CLAMP: Entry = pointwise::unary_entry::<Clamp>(
    || {
        let of = |op| pointwise::unary_samples(&op, Fill::Normal(1.0));
        SAMPLES.into_iter().flat_map(of).collect()
    },
    || pointwise::rejects::<1>(&SAMPLES[0]),
);

const CLAMP_BACKWARD: Entry = pointwise::binary_entry::<ClampBackward>(
    || {
        let of = |op| pointwise::binary_samples(&ClampBackward(op), [Fill::Normal(1.0); 2]);
        let [both, more @ ..] = SAMPLES.map(of);
        let more = more
            .into_iter()
            .flat_map(|samples| samples.into_iter().take(3));
        both.into_iter().chain(more).collect()
    },
    || pointwise::rejects::<2>(&ClampBackward(SAMPLES[0])),
);
