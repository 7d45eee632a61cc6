//! What Adafactor and Muon compute beside products, sums and norms: quotients by numbers that are held above
//! a least one, and the factor of Adafactor's step. As `torch.optim.Adafactor` and `torch.optim.Muon`.
//!
//! None has a gradient.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::simd::Isa;
use crate::{Entry, Fill};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[DIV_AT_LEAST, DIV_ROOT_AT_LEAST, FACTORED_SCALE];

/// `a / max(b, least)`, as `a / b.clamp(min=least)`: NaN stays NaN. Inputs broadcast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DivAtLeast {
    /// The least divisor.
    pub least: f64,
}

/// `a / max(sqrt(b), least)`, as `a * b.clamp(min=least**2).rsqrt()`: NaN stays NaN. Inputs broadcast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DivRootAtLeast {
    /// The least divisor.
    pub least: f64,
}

/// How far Adafactor goes in a direction, beside the learning rate: with the norms `a` of the parameter and
/// `b` of the direction, both of so many elements, and `rms` a norm over the root of that number,
/// `max(eps, rms(a)) / max(1, rms(b) / d)`. NaN stays NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FactoredScale {
    /// Elements of the parameter.
    pub elements: usize,
    /// The least root mean square of a parameter.
    pub eps: f64,
    /// The root mean square of a direction from which on it is clipped.
    pub d: f64,
}

pointwise_op!(DivAtLeast: 2, DivRootAtLeast: 2, FactoredScale: 2);

/// The larger of a value and a bound; NaN of a value that is NaN.
#[inline(always)]
fn at_least<T: PartialOrd>(x: T, least: T) -> T {
    if x < least { least } else { x }
}

impl Pointwise<2> for DivAtLeast {
    const NAME: &'static str = "div_at_least";
    const FLOPS: f64 = 5.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
        a / at_least(b, self.least as f32)
    }

    fn exact(&self, [a, b]: [f64; 2]) -> f64 {
        a / at_least(b, self.least)
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.least.to_bits());
    }
}

impl Pointwise<2> for DivRootAtLeast {
    const NAME: &'static str = "div_root_at_least";
    const FLOPS: f64 = 10.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
        a / at_least(b.sqrt(), self.least as f32)
    }

    fn exact(&self, [a, b]: [f64; 2]) -> f64 {
        a / at_least(b.sqrt(), self.least)
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.least.to_bits());
    }
}

impl Pointwise<2> for FactoredScale {
    const NAME: &'static str = "factored_scale";
    const FLOPS: f64 = 10.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [a, b]: [f32; 2]) -> f32 {
        let root = (self.elements as f64).sqrt();
        let of_parameter = at_least(a / root as f32, self.eps as f32);
        of_parameter / at_least(b / (root * self.d) as f32, 1.0)
    }

    fn exact(&self, [a, b]: [f64; 2]) -> f64 {
        let root = (self.elements as f64).sqrt();
        at_least(a / root, self.eps) / at_least(b / (root * self.d), 1.0)
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u64(self.elements as u64);
        hasher.write_u64(self.eps.to_bits());
        hasher.write_u64(self.d.to_bits());
    }
}

const LEAST: f64 = 0.25;
const SCALE: FactoredScale = FactoredScale {
    elements: 100,
    eps: 1e-2,
    d: 1.5,
};
const POSITIVE: [Fill; 2] = [Fill::Normal(1.0), Fill::Uniform(0.0, 2.0)];

const DIV_AT_LEAST: Entry = pointwise::binary_entry::<DivAtLeast>(
    || pointwise::binary_samples(&DivAtLeast { least: LEAST }, POSITIVE),
    || pointwise::rejects::<2>(&DivAtLeast { least: LEAST }),
);

const DIV_ROOT_AT_LEAST: Entry = pointwise::binary_entry::<DivRootAtLeast>(
    || pointwise::binary_samples(&DivRootAtLeast { least: LEAST }, POSITIVE),
    || pointwise::rejects::<2>(&DivRootAtLeast { least: LEAST }),
);

const FACTORED_SCALE: Entry = pointwise::binary_entry::<FactoredScale>(
    || pointwise::binary_samples(&SCALE, [Fill::Uniform(0.0, 1.0), Fill::Uniform(0.0, 40.0)]),
    || pointwise::rejects::<2>(&SCALE),
);
