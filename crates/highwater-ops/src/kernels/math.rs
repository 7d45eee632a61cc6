//! Elementary functions in `f32`, without branches, so that loops over them vectorise.
//!
//! The tests measure every error against `f64`, in units in the last place (ulp), with
//! multiplication and addition fused and not.
//!
//! Arguments are brought into a short range by arithmetic on bits, and a polynomial is taken there, by
//! Horner's rule: no tables, whose look-ups are slow in vectors, and constants that stay in registers. `exp`,
//! `tanh` and `erf` share one reduction. Exponentials of a large tensor run at 91% of the pace of a copy with
//! AVX-512 (BENCHMARKS.md).

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]

use crate::kernels::simd::Isa;
use std::f32::consts::{LN_2, LOG2_E};

/// `1.5 * 2^23`: adding it rounds to an integer, to nearest even, and leaves that integer in the
/// low bits.
const ROUND: f32 = 12_582_912.0;

/// The upper bits of ln 2, few enough that products with exponents are exact, and the rest.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// `(exp(r) - 1 - r) / r^2` for `|r| <= ln 2 / 2`.
const EXPM1_TAIL: [f32; 5] = [
    0.5,
    0.166_665_76,
    0.041_666_854,
    0.008_363_226,
    0.001_390_132_6,
];

/// `(log(1 + f) - f + f^2 / 2) / f^3` for `1 + f` between the square roots of 1/2 and 2.
const LOG_TAIL: [f32; 9] = [
    0.333_333_3,
    -0.249_999_94,
    0.200_007_14,
    -0.166_680_57,
    0.142_493_22,
    -0.124_201_44,
    0.116_770_09,
    -0.115_145_974,
    0.070_376_44,
];

/// `erf(x) / x` as a polynomial of `x^2`, for `|x| <= 0.9`.
const ERF_SMALL: [f32; 7] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    -0.376_126_35,
    0.112_837_106,
    -0.026_860_243,
    0.005_203_170_7,
    -8.167_469e-4,
    8.476_977e-5,
];

/// `-log(1 - erf(x)) / x` for `0.9 <= x <= 4`.
const ERF_LARGE: [f32; 8] = [
    1.128_818_4,
    0.634_456_46,
    0.107_395_1,
    -0.024_774_173,
    0.004_137_157,
    -4.550_046e-4,
    2.821_532_5e-5,
    -6.854_993_4e-7,
];

/// `cos(2 pi t)` and `sin(2 pi t) / t` as polynomials of `t^2`, for `|t| <= 1/8`.
const COS_TURNS: [f32; 5] = [1.0, -19.739_208, 64.939_31, -85.442_3, 59.202_797];
const SIN_TURNS: [f32; 5] = [6.283_185_5, -41.341_7, 81.605_2, -76.697_78, 41.469_89];

/// The polynomial with these coefficients, lowest first, by Horner's rule.
#[inline(always)]
fn polynomial<I: Isa, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let (highest, rest) = coefficients
        .split_last()
        .expect("a polynomial has coefficients");
    rest.iter().rev().fold(*highest, |y, &c| I::fma(y, x, c))
}

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// `x = n ln 2 + r`: `n`, `r` and `exp(r) - 1`, for `x` within the range of `exp`.
#[inline(always)]
fn reduce<I: Isa>(x: f32) -> (i32, f32) {
    let rounded = I::fma(x, LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = I::fma(n, -LN_2_LOW, I::fma(n, -LN_2_HIGH, x));
    let tail = polynomial::<I, _>(r, EXPM1_TAIL);
    let expm1 = I::fma(tail, r * r, r);
    (
        (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32),
        expm1,
    )
}

/// `e^x` within 1.5 ulp; overflows to infinity, underflows to zero.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: f32) -> f32 {
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (n, expm1) = reduce::<I>(x);
    // Two steps, since 2^n itself may be out of range.
    let half = n >> 1;
    (expm1 + 1.0) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `tanh(x)` within 2.5 ulp.
#[inline(always)]
pub(crate) fn tanh<I: Isa>(x: f32) -> f32 {
    let magnitude = x.abs();
    let magnitude = if magnitude > 10.0 { 10.0 } else { magnitude };
    let (n, expm1) = reduce::<I>(2.0 * magnitude);
    let power = power_of_two(n);
    // exp(2|x|) - 1, without cancellation for small x.
    let e = I::fma(power, expm1, power - 1.0);
    (e / (e + 2.0)).copysign(x)
}

/// `1 / (1 + e^-x)` within 3 ulp (where it is not subnormal).
#[inline(always)]
pub(crate) fn sigmoid<I: Isa>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<I>(-x))
}

/// The natural logarithm within 1 ulp; minus infinity at zero, NaN below.
#[inline(always)]
pub(crate) fn log<I: Isa>(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    // The exponent that leaves a mantissa between the square roots of 1/2 and 2.
    let shifted = bits.wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32) >> 23;
    let mantissa = f32::from_bits(bits.wrapping_sub(shifted << 23) as u32);
    let n = shifted as f32 - if subnormal { 23.0 } else { 0.0 };
    let f = mantissa - 1.0;
    let square = f * f;
    let tail = polynomial::<I, _>(f, LOG_TAIL) * (square * f);
    let low = I::fma(n, LN_2_LOW, I::fma(square, -0.5, tail));
    let log = I::fma(n, LN_2_HIGH, f + low);
    let log = if x == f32::INFINITY { x } else { log };
    let log = if x == 0.0 { f32::NEG_INFINITY } else { log };
    if x >= 0.0 { log } else { f32::NAN }
}

/// The error function within 2.5 ulp.
#[inline(always)]
pub(crate) fn erf<I: Isa>(x: f32) -> f32 {
    let magnitude = x.abs();
    let clamped = if magnitude > 4.0 { 4.0 } else { magnitude };
    let small = x * polynomial::<I, _>(x * x, ERF_SMALL);
    let (n, expm1) = reduce::<I>(-clamped * polynomial::<I, _>(clamped, ERF_LARGE));
    let large = 1.0 - (expm1 + 1.0) * power_of_two(n);
    if magnitude < 0.9 {
        small
    } else {
        large.copysign(x)
    }
}

/// Sine and cosine of `2 pi x`, for `0 <= x <= 1`, within `1e-7`.
#[inline(always)]
pub(crate) fn sin_cos_turns<I: Isa>(x: f32) -> (f32, f32) {
    let rounded = x * 4.0 + ROUND;
    let quarter = rounded.to_bits() & 3;
    let t = I::fma(rounded - ROUND, -0.25, x);
    let square = t * t;
    let sin = t * polynomial::<I, _>(square, SIN_TURNS);
    let cos = polynomial::<I, _>(square, COS_TURNS);
    let (s, c) = if quarter & 1 == 0 {
        (sin, cos)
    } else {
        (cos, -sin)
    };
    if quarter & 2 == 0 { (s, c) } else { (-s, -c) }
}

/// ln 2, split as the reductions here use it.
const _: () = assert!(LN_2_HIGH + LN_2_LOW - LN_2 == 0.0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::simd::{Fused, Plain, multiversion};

    /// Largest error in ulp over a fine sweep of `[low, high]`, for `f` compiled as kernels are.
    fn error(low: f64, high: f64, f: impl Fn(&[f32], &mut [f32]), exact: fn(f64) -> f64) -> f64 {
        const STEPS: usize = 400_000;
        let x: Vec<f32> = (0..=STEPS)
            .map(|i| (low + (high - low) * i as f64 / STEPS as f64) as f32)
            .collect();
        let mut y = vec![0.0; x.len()];
        f(&x, &mut y);
        let ulp = |v: f64| f64::from((v.abs() as f32).next_up()) - f64::from(v.abs() as f32);
        x.iter()
            .zip(&y)
            .map(|(&x, &y)| {
                let exact = exact(f64::from(x));
                (f64::from(y) - exact).abs() / ulp(exact)
            })
            .fold(0.0, f64::max)
    }

    macro_rules! on_slices {
        ($($name:ident),*) => {$(
            mod $name {
                use super::*;
                multiversion! {
                    pub(super) fn here[I](x: &[f32], y: &mut [f32]) {
                        y.iter_mut().zip(x).for_each(|(y, &x)| *y = super::super::$name::<I>(x));
                    }
                }
                pub(super) fn plain(x: &[f32], y: &mut [f32]) {
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y = super::super::$name::<Plain>(x));
                }
                pub(super) fn fused(x: &[f32], y: &mut [f32]) {
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y = super::super::$name::<Fused>(x));
                }
            }
        )*};
    }
    on_slices!(exp, tanh, sigmoid, log, erf);

    macro_rules! assert_error {
        ($name:ident, $low:expr, $high:expr, $exact:expr, $ulp:expr) => {
            let exact = $exact;
            let fused = error($low, $high, $name::fused, exact);
            let plain = error($low, $high, $name::plain, exact);
            let name = stringify!($name);
            println!("{name} [{}, {}]: {fused:.2} {plain:.2}", $low, $high);
            assert!(fused <= $ulp && plain <= $ulp, "{name}: {fused} {plain}");
            assert!(error($low, $high, $name::here, exact) <= $ulp);
        };
    }

    #[test]
    fn errors_are_a_few_ulp() {
        assert_error!(exp, -87.0, 88.7, f64::exp, 1.5);
        assert_error!(exp, -1.0, 1.0, f64::exp, 1.5);
        assert_error!(exp, -103.9, -87.4, f64::exp, 1.5);
        assert_error!(tanh, -12.0, 12.0, f64::tanh, 2.5);
        assert_error!(tanh, -1e-3, 1e-3, f64::tanh, 2.5);
        let exact_sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert_error!(sigmoid, -80.0, 40.0, exact_sigmoid, 3.0);
        assert_error!(log, 1e-3, 3.0, f64::ln, 1.0);
        assert_error!(log, 0.9, 1.1, f64::ln, 1.0);
        assert_error!(log, 1e-44, 1e-37, f64::ln, 1.0);
        assert_error!(log, 1.0, 3e38, f64::ln, 1.0);
        assert_error!(erf, -4.5, 4.5, crate::kernels::reference_math::erf, 2.5);
        assert_error!(erf, -1e-3, 1e-3, crate::kernels::reference_math::erf, 2.5);
    }

    #[test]
    fn special_values_are_as_in_c() {
        let inf = f32::INFINITY;
        assert_eq!(
            [exp::<Plain>(-inf), exp::<Plain>(inf)].map(f32::to_bits),
            [0.0, inf].map(f32::to_bits)
        );
        assert_eq!(exp::<Plain>(0.0).to_bits(), 1.0_f32.to_bits());
        assert_eq!(tanh::<Plain>(-0.0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(erf::<Plain>(-0.0).to_bits(), (-0.0_f32).to_bits());
        let one = [
            tanh::<Plain>(inf),
            -tanh::<Plain>(-30.0),
            erf::<Plain>(inf),
            -erf::<Plain>(-4.0),
        ];
        assert_eq!(one.map(f32::to_bits), [1.0_f32; 4].map(f32::to_bits));
        assert_eq!(log::<Plain>(0.0).to_bits(), (-inf).to_bits());
        assert_eq!(log::<Plain>(inf).to_bits(), inf.to_bits());
        for f in [
            exp::<Fused>,
            tanh::<Fused>,
            log::<Fused>,
            erf::<Fused>,
            sigmoid::<Fused>,
        ] {
            assert!(f(f32::NAN).is_nan());
        }
        assert!(log::<Plain>(-1.0).is_nan());
    }

    #[test]
    fn turns_are_accurate() {
        for i in 0..=100_000 {
            let x = i as f32 / 100_000.0;
            let (s, c) = sin_cos_turns::<Plain>(x);
            let (es, ec) = (f64::from(x) * std::f64::consts::TAU).sin_cos();
            assert!((f64::from(s) - es).abs() < 2e-7 && (f64::from(c) - ec).abs() < 2e-7);
        }
    }

    #[test]
    fn a_machine_gives_the_same_bits_wherever_a_number_lies_in_a_slice() {
        let x: Vec<f32> = (0..200).map(|i| (i as f32 - 100.0) / 17.0).collect();
        let mut whole = vec![0.0; 200];
        tanh::here(&x, &mut whole);
        for start in 0..70 {
            let mut part = vec![0.0; 200 - start];
            tanh::here(&x[start..], &mut part);
            assert!(
                part.iter()
                    .zip(&whole[start..])
                    .all(|(a, b)| a.to_bits() == b.to_bits())
            );
        }
    }
}
