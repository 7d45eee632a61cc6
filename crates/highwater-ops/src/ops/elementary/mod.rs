//! Functions of one element whose gradients are made of other operations: `sin`, `cos`, `expm1`, `log1p`,
//! `erf`, `reciprocal`, `rsqrt`.
//!
//! Each takes one float tensor of any shape and layout, may work in place, and costs one pass. Backward
//! emits operations that exist, so that gradients have gradients of their own.
//!
//! Their loops are cut and held as `pointwise/kernels.rs` says. Those that are computed in `f64`
//! (`wide_math.rs`) have half as many elements to a vector: `sin` runs at 16 to 20% of the pace of a copy,
//! where `rsqrt` is above 60% (with AVX2, BENCHMARKS.md).

use crate::kernels::math;
use crate::kernels::pointwise::{self, Pointwise, pointwise_op};
use crate::kernels::reference_math;
use crate::kernels::simd::Isa;
use crate::kernels::wide_math;
use crate::ops::gradients::set_reduced;
use crate::{AddScalar, Div, Entry, Exp, Fill, Mul, MulScalar, Neg, Square};
use highwater_graph::{Autocast, Backward, OpError, Operand};

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[SIN, COS, EXPM1, LOG1P, ERF, RECIPROCAL, RSQRT];

macro_rules! elementary {
    ($($(#[$doc:meta])* $op:ident, $name:literal, $flops:literal, $autocast:ident, $entry:ident on $fill:expr,
       |$x:ident| $value:expr, $exact:expr, |$backward:ident, $grad:ident| $emit:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $op;

        pointwise_op!($op: 1);

        impl Pointwise<1> for $op {
            const NAME: &'static str = $name;
            const FLOPS: f64 = $flops;
            const AUTOCAST: Autocast = Autocast::$autocast;

            #[inline(always)]
            fn value<I: Isa>(&self, [$x]: [f32; 1]) -> f32 {
                $value
            }

            fn exact(&self, [$x]: [f64; 1]) -> f64 {
                $exact
            }

            fn emit(&self, backward: &mut Backward<'_>) -> Result<(), OpError> {
                set_reduced(backward, 0, |$backward, $grad| $emit)
            }
        }

        const $entry: Entry = pointwise::unary_entry::<$op>(
            || pointwise::unary_samples(&$op, $fill),
            || pointwise::rejects::<1>(&$op),
        );
    )*};
}

elementary! {
    /// The sine, within 0.51 ulp for arguments of any size. As `torch.sin`.
    Sin, "sin", 20.0, AsTaken, SIN on Fill::Normal(20.0),
        |x| wide_math::sin(x), x.sin(), |backward, grad| {
            let cos = of_input(backward, Cos)?;
            backward.emit_one(Mul, &[grad, cos])
        };

    /// The cosine, within 0.51 ulp for arguments of any size. As `torch.cos`.
    Cos, "cos", 20.0, AsTaken, COS on Fill::Normal(20.0),
        |x| wide_math::cos(x), x.cos(), |backward, grad| {
            let sin = of_input(backward, Sin)?;
            let slope = backward.emit_one(Neg, &[sin])?;
            backward.emit_one(Mul, &[grad, slope])
        };

    /// `e^x - 1`, within 0.51 ulp. As `torch.expm1`.
    Expm1, "expm1", 15.0, Full, EXPM1 on Fill::Uniform(-5.0, 2.0),
        |x| wide_math::expm1(x), x.exp_m1(), |backward, grad| {
            let output = backward.output(0);
            let slope = backward.emit_one(AddScalar { value: 1.0 }, &[output])?;
            backward.emit_one(Mul, &[grad, slope])
        };

    /// `log(1 + x)`, within 0.51 ulp; minus infinity at -1, NaN below. As `torch.log1p`.
    Log1p, "log1p", 20.0, Full, LOG1P on Fill::Uniform(-0.9, 20.0),
        |x| wide_math::log1p(x), x.ln_1p(), |backward, grad| {
            let sum = of_input(backward, AddScalar { value: 1.0 })?;
            backward.emit_one(Div, &[grad, sum])
        };

    /// The error function, within 2.5 ulp. As `torch.erf`.
    Erf, "erf", 25.0, AsTaken, ERF on Fill::Normal(1.5),
        |x| math::erf::<I>(x), reference_math::erf(x), |backward, grad| {
            let square = of_input(backward, Square)?;
            let negative = backward.emit_one(Neg, &[square])?;
            let bell = backward.emit_one(Exp, &[negative])?;
            let value = std::f64::consts::FRAC_2_SQRT_PI;
            let slope = backward.emit_one(MulScalar { value }, &[bell])?;
            backward.emit_one(Mul, &[grad, slope])
        };

    /// `1 / x`, correctly rounded. As `torch.reciprocal`.
    Reciprocal, "reciprocal", 4.0, Full, RECIPROCAL on Fill::Uniform(0.3, 5.0),
        |x| 1.0 / x, 1.0 / x, |backward, grad| {
            let output = backward.output(0);
            let square = backward.emit_one(Square, &[output])?;
            let grad = backward.emit_one(Mul, &[grad, square])?;
            backward.emit_one(Neg, &[grad])
        };

    /// `1 / sqrt(x)`, within 1 ulp. As `torch.rsqrt`.
    Rsqrt, "rsqrt", 8.0, Full, RSQRT on Fill::Uniform(0.3, 5.0),
        |x| 1.0 / x.sqrt(), 1.0 / x.sqrt(), |backward, grad| {
            let output = backward.output(0);
            let cube = backward.emit_one(crate::PowScalar { exponent: 3.0 }, &[output])?;
            let grad = backward.emit_one(Mul, &[grad, cube])?;
            backward.emit_one(MulScalar { value: -0.5 }, &[grad])
        };
}

/// A function of the input.
fn of_input(backward: &mut Backward<'_>, op: impl highwater_graph::Op) -> Result<Operand, OpError> {
    let input = backward.input(0);
    backward.emit_one(op, &[input])
}
