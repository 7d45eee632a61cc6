//! The Gaussian error linear unit: `gelu` and `gelu_backward`.
//!
//! `x Phi(x)`, where `Phi` is the normal distribution function (Hendrycks and Gimpel, 2016), exact or
//! by an approximation with `tanh`. As `torch.nn.functional.gelu`. One `F32` tensor of any shape and
//! layout; computes in `f32`; one pass; in place. Backward reads the input, and may overwrite the
//! gradient.
//!
//! The approximation is taken as a sigmoid, which is one exponential and one quotient, and its gradient makes
//! both what it needs of one exponential. It runs at 91% of the pace of a copy, its gradient at 93%, and that
//! by the error function, two polynomials of which one is taken, at 83% (with AVX-512, BENCHMARKS.md). How
//! its loop is cut and held, see `pointwise/kernels.rs`.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::math;
use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::reference_math;
use crate::kernels::simd::Isa;
use crate::ops::gradients::{self, in_grad, in_other};
use crate::{Add, AddScalar, Entry, Exp, Fill, Mul, MulScalar, Neg, Sample, Sigmoid, Square};
use highwater_graph::{Backward, Op, OpError, Operand};
use std::f32::consts::FRAC_1_SQRT_2;
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};
use std::hash::Hasher;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[GELU, GELU_BACKWARD];

/// How the normal distribution function is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum GeluApproximate {
    /// By the error function.
    #[default]
    None,
    /// `(1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`, as GPT-2 does.
    Tanh,
}

/// `x Phi(x)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gelu {
    /// How `Phi` is computed.
    pub approximate: GeluApproximate,
}

/// `g d(x Phi(x)) / dx` of inputs `g` and `x`.
#[derive(Debug, Clone, Copy)]
struct GeluBackward {
    approximate: GeluApproximate,
}

pointwise_op!(Gelu: 1, GeluBackward: 2);

/// The approximation is the sigmoid of `x (LINEAR + CUBIC x^2)`: `(1 + tanh(u)) / 2` is that of 2u.
const LINEAR: f32 = 1.595_769_2;
const CUBIC: f32 = 0.071_354_816;
/// `1 / sqrt(2 pi)`
const DENSITY_AT_0: f32 = 0.398_942_3;

impl Pointwise<1> for Gelu {
    const NAME: &'static str = "gelu";
    const FLOPS: f64 = 15.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [x]: [f32; 1]) -> f32 {
        match self.approximate {
            GeluApproximate::None => {
                let half = 0.5 * x;
                I::fma(half, math::erf::<I>(x * FRAC_1_SQRT_2), half)
            }
            GeluApproximate::Tanh => x * math::sigmoid::<I>(x * I::fma(x * x, CUBIC, LINEAR)),
        }
    }

    fn exact(&self, [x]: [f64; 1]) -> f64 {
        x * distribution(self.approximate, x)
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(self.approximate as u8);
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        let approximate = self.approximate;
        gradients::from_input(backward, GeluBackward { approximate })
    }
}

impl Pointwise<2> for GeluBackward {
    const NAME: &'static str = "gelu_backward";
    const FLOPS: f64 = 25.0;

    #[inline(always)]
    fn value<I: Isa>(&self, [g, x]: [f32; 2]) -> f32 {
        match self.approximate {
            GeluApproximate::None => {
                let phi = I::fma(0.5, math::erf::<I>(x * FRAC_1_SQRT_2), 0.5);
                let density = DENSITY_AT_0 * math::exp::<I>(-0.5 * (x * x));
                g * I::fma(x, density, phi)
            }
            GeluApproximate::Tanh => {
                let square = x * x;
                let z = x * I::fma(square, CUBIC, LINEAR);
                // Bounded so that 1 - phi = e phi has neither overflow nor cancellation.
                let e = math::exp::<I>(-if z < -80.0 { -80.0 } else { z });
                let phi = 1.0 / (1.0 + e);
                let slope = I::fma(square, 3.0 * CUBIC, LINEAR);
                g * I::fma(x * slope, phi * (e * phi), phi)
            }
        }
    }

    fn exact(&self, [g, x]: [f64; 2]) -> f64 {
        let phi = distribution(self.approximate, x);
        let density = match self.approximate {
            GeluApproximate::None => (-0.5 * x * x).exp() * FRAC_2_SQRT_PI / (2.0 * SQRT_2),
            GeluApproximate::Tanh => {
                let slope = FRAC_2_SQRT_PI / SQRT_2 * (1.0 + 3.0 * 0.044_715 * x * x);
                2.0 * phi * (1.0 - phi) * slope
            }
        };
        g * (phi + x * density)
    }

    fn hash(&self, hasher: &mut dyn Hasher) {
        hasher.write_u8(self.approximate as u8);
    }

    fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
        in_grad(backward, *self)?;
        let second = match self.approximate {
            GeluApproximate::None => second_derivative,
            GeluApproximate::Tanh => second_derivative_of_tanh,
        };
        in_other(backward, |backward, product, x| {
            second(backward, product, &x)
        })
    }
}

/// A function of one operand.
fn of(backward: &mut Backward<'_>, op: impl Op, x: &Operand) -> Result<Operand, OpError> {
    backward.emit_one(op, std::slice::from_ref(x))
}

/// A number times an operand, plus a number.
fn line(
    backward: &mut Backward<'_>,
    factor: f64,
    x: &Operand,
    offset: f64,
) -> Result<Operand, OpError> {
    let product = of(backward, MulScalar { value: factor }, x)?;
    of(backward, AddScalar { value: offset }, &product)
}

/// `p phi(x) (2 - x^2)`, where `phi` is the density.
fn second_derivative(
    backward: &mut Backward<'_>,
    p: Operand,
    x: &Operand,
) -> Result<Operand, OpError> {
    let square = of(backward, Square, x)?;
    let rest = line(backward, -1.0, &square, 2.0)?;
    let exponent = of(backward, MulScalar { value: -0.5 }, &square)?;
    let bell = of(backward, Exp, &exponent)?;
    let value = f64::from(DENSITY_AT_0);
    let density = of(backward, MulScalar { value }, &bell)?;
    let slope = backward.emit_one(Mul, &[density, rest])?;
    backward.emit_one(Mul, &[p, slope])
}

/// `p s (1 - s) (2 z' + x z'' + x z'^2 (1 - 2 s))`, where `s` is the sigmoid of `z = x (LINEAR + CUBIC x^2)`.
fn second_derivative_of_tanh(
    backward: &mut Backward<'_>,
    p: Operand,
    x: &Operand,
) -> Result<Operand, OpError> {
    let (linear, cubic) = (f64::from(LINEAR), f64::from(CUBIC));
    let square = of(backward, Square, x)?;
    let factor = line(backward, cubic, &square, linear)?;
    let z = backward.emit_one(Mul, &[x.clone(), factor])?;
    let s = of(backward, Sigmoid, &z)?;
    let slope = line(backward, 3.0 * cubic, &square, linear)?;
    let slope_squared = of(backward, Square, &slope)?;
    let bend = backward.emit_one(Mul, &[x.clone(), slope_squared])?;
    let turn = line(backward, -2.0, &s, 1.0)?;
    let bend = backward.emit_one(Mul, &[bend, turn])?;
    // 2 z' + x z'' is a line in x^2.
    let rest = line(backward, 12.0 * cubic, &square, 2.0 * linear)?;
    let sum = backward.emit_one(Add, &[bend, rest])?;
    // 1 - s is a sigmoid too, of which nothing is lost.
    let negative = of(backward, Neg, &z)?;
    let rest_of_s = of(backward, Sigmoid, &negative)?;
    let density = backward.emit_one(Mul, &[s, rest_of_s])?;
    let slope = backward.emit_one(Mul, &[density, sum])?;
    backward.emit_one(Mul, &[p, slope])
}

/// `Phi(x)`, exact or approximate.
fn distribution(approximate: GeluApproximate, x: f64) -> f64 {
    match approximate {
        GeluApproximate::None => 0.5 * (1.0 + reference_math::erf(x / SQRT_2)),
        GeluApproximate::Tanh => {
            let u = FRAC_2_SQRT_PI / SQRT_2 * (x + 0.044_715 * x.powi(3));
            0.5 * (1.0 + u.tanh())
        }
    }
}

const BOTH: [GeluApproximate; 2] = [GeluApproximate::None, GeluApproximate::Tanh];

const GELU: Entry = pointwise::unary_entry::<Gelu>(
    || {
        let samples =
            |approximate| pointwise::unary_samples(&Gelu { approximate }, Fill::Normal(2.0));
        BOTH.into_iter().flat_map(samples).collect::<Vec<Sample>>()
    },
    || pointwise::rejects::<1>(&Gelu::default()),
);

const GELU_BACKWARD: Entry = pointwise::binary_entry::<GeluBackward>(
    || {
        let fills = [Fill::Normal(1.0), Fill::Normal(2.0)];
        let samples = |approximate| pointwise::binary_samples(&GeluBackward { approximate }, fills);
        let [exact, tanh] = BOTH.map(samples);
        let some = tanh.into_iter().take(5);
        pointwise::of_many_nodes(exact.into_iter().chain(some).collect())
    },
    || {
        let approximate = GeluApproximate::Tanh;
        pointwise::rejects::<2>(&GeluBackward { approximate })
    },
);
