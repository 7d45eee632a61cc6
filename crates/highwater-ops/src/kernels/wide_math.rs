//! Elementary functions of `f32` that are computed in `f64` and rounded once, without branches, so that
//! loops over them vectorise.
//!
//! They are within 0.51 ulp of the exact result, for arguments of any size, and the same bits on every
//! machine: nothing here is fused. What is exact in `f32`, such as a whole power of a small whole number,
//! is therefore exact here. The tests measure the errors against `f64`.
//!
//! A vector holds half as many `f64`, and polynomials are longer than those of `math.rs`. That is the price
//! of the digits: `sin` runs at 16 to 20% of the pace of a copy, `pow` at 10 to 15% (with AVX2,
//! BENCHMARKS.md). All of a function is in registers but for the table of turns, of which a sine reads one
//! row.

#![expect(
    clippy::inline_always,
    reason = "compiled for the instruction set of the caller"
)]
#![expect(clippy::float_cmp, reason = "numbers are told apart exactly")]

use std::f64::consts::{LN_2, LOG2_E, TAU};

/// `1.5 * 2^52`: adding it rounds to an integer, to nearest even, and leaves that integer in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// The bit pattern of `2^52`, in whose low bits a whole number can stand.
const WHOLE: u64 = 0x4330_0000_0000_0000;

/// `(exp(r) - 1) / r` for `|r| <= ln 2 / 2`, within `2^-35`: Taylor's series.
const EXPM1: [f64; 9] = [
    1.0,
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5_040.0,
    1.0 / 40_320.0,
    1.0 / 362_880.0,
];

/// `atanh(s) / s` as a polynomial of `s^2`, for `|s| <= 0.172`, within `2^-44`.
const ATANH: [f64; 8] = [
    1.0,
    1.0 / 3.0,
    1.0 / 5.0,
    1.0 / 7.0,
    1.0 / 9.0,
    1.0 / 11.0,
    1.0 / 13.0,
    1.0 / 15.0,
];

/// `sin(a) / a` and `cos(a)` as polynomials of `a^2`, for `|a| <= pi / 4`, within `2^-32`.
const SIN: [f64; 6] = [
    1.0,
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
];
const COS: [f64; 7] = [
    1.0,
    -1.0 / 2.0,
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
    1.0 / 479_001_600.0,
];

/// The first 256 bits of `1 / (2 pi)` after the point.
const TURN: [u64; 4] = [
    0x28be_60db_9391_054a,
    0x7f09_d5f4_7d4d_3770,
    0x36d8_a566_4f10_e410,
    0x7f94_58ea_f7ae_f158,
];

/// For each exponent of an `f32`, how many turns a unit of its last place is, whole ones left out: 29 bits,
/// whose products with a mantissa are exact, and the 53 bits that follow them.
static TURNS: [[f64; 2]; 256] = {
    let mut table = [[f64::NAN; 2]; 256];
    let mut exponent = 0;
    while exponent < 255 {
        // Subnormal numbers have the unit of the smallest normal ones.
        let unit = if exponent == 0 { 1 } else { exponent as i32 } - 150;
        let whole = if unit > 0 { unit } else { 0 };
        let bits = bits_of_turn(whole as usize);
        let (high, low) = (bits >> 99, bits >> 46 & ((1 << 53) - 1));
        let scale = unit - whole;
        table[exponent] = [
            high as f64 * power_of_two(scale - 29),
            low as f64 * power_of_two(scale - 82),
        ];
        exponent += 1;
    }
    table
};

/// The 128 bits of `1 / (2 pi)` from the `start`-th after the point on.
const fn bits_of_turn(start: usize) -> u128 {
    let (word, shift) = (start / 64, start % 64);
    let pair = (TURN[word] as u128) << 64 | TURN[word + 1] as u128;
    let after = if word + 2 < TURN.len() {
        TURN[word + 2] as u128
    } else {
        0
    };
    pair << shift | after << shift >> 64
}

/// `2^n` where that is a normal number.
const fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The polynomial with these coefficients, lowest first, by Horner's rule.
#[inline(always)]
fn polynomial<const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    let (highest, rest) = coefficients
        .split_last()
        .expect("a polynomial has coefficients");
    rest.iter().rev().fold(*highest, |y, &c| y * x + c)
}

/// The sine of `|x|` and a number of quarters of a turn.
#[inline(always)]
fn sine_of_magnitude(x: f32, quarters: u64) -> f32 {
    let bits = x.to_bits();
    let exponent = bits >> 23 & 0xff;
    let leading = if exponent == 0 { 0 } else { 1 << 23 };
    let mantissa = f64::from((bits & 0x7f_ffff | leading) as i32);
    let [high, low] = TURNS[exponent as usize];
    let turns = mantissa * high;
    let turns = turns - (turns + ROUND - ROUND) + mantissa * low;
    let rounded = turns * 4.0 + ROUND;
    let angle = (turns - (rounded - ROUND) * 0.25) * TAU;
    let square = angle * angle;
    let (sin, cos) = (angle * polynomial(square, SIN), polynomial(square, COS));
    let quarter = rounded.to_bits().wrapping_add(quarters);
    let value = if quarter & 1 == 0 { sin } else { cos };
    (if quarter & 2 == 0 { value } else { -value }) as f32
}

/// `sin(x)`.
#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    let sign = x.to_bits() & (1 << 31);
    f32::from_bits(sine_of_magnitude(x, 0).to_bits() ^ sign)
}

/// `cos(x)`.
#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    sine_of_magnitude(x, 1)
}

/// `2^n` and `exp(r) - 1`, where `x = n ln 2 + r`, for `x` between -690 and 690.
#[inline(always)]
fn power_and_expm1(x: f64) -> (f64, f64) {
    let rounded = x * LOG2_E + ROUND;
    let r = x - (rounded - ROUND) * LN_2;
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    let power = f64::from_bits(n.wrapping_add(1023) << 52);
    (power, r * polynomial(r, EXPM1))
}

/// `exp(x) - 1`.
#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    let bounded = if x > 100.0 { 100.0 } else { x };
    let bounded = if bounded < -100.0 { -100.0 } else { bounded };
    let (power, expm1) = power_and_expm1(f64::from(bounded));
    ((power * expm1 + (power - 1.0)) as f32).copysign(x)
}

/// `n`, `m - 1` and whether `n` is 0, where `x = 2^n m` and `m` is between the square roots of 1/2 and 2;
/// for normal positive numbers.
#[inline(always)]
fn exponent_and_mantissa(x: f64) -> (f64, f64, bool) {
    const ONE: u64 = 1.0_f64.to_bits();
    const LEAST: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let biased = (x.to_bits().wrapping_sub(LEAST).wrapping_add(ONE)) >> 52;
    let n = f64::from_bits(WHOLE | biased) - f64::from_bits(WHOLE | 1023);
    let mantissa = x.to_bits().wrapping_sub(biased << 52).wrapping_add(ONE);
    (n, f64::from_bits(mantissa) - 1.0, biased == 1023)
}

/// `log(1 + f)` for `1 + f` between the square roots of 1/2 and 2.
#[inline(always)]
fn log_near_one(f: f64) -> f64 {
    let s = f / (2.0 + f);
    2.0 * s * polynomial(s * s, ATANH)
}

/// `log(1 + x)`; minus infinity at -1, NaN below.
#[inline(always)]
pub(crate) fn log1p(x: f32) -> f32 {
    let wide = f64::from(x);
    let sum = 1.0 + wide;
    let (n, f, near) = exponent_and_mantissa(sum);
    // Near 1 the sum has lost what `x` still knows.
    let f = if near { wide } else { f };
    let log = n * LN_2 + log_near_one(f);
    let log = if sum == 0.0 { f64::NEG_INFINITY } else { log };
    let log = if x == f32::INFINITY { wide } else { log };
    let log = if sum >= 0.0 { log } else { f64::NAN };
    (log as f32).copysign(x)
}

/// The logarithm of `x >= 0`.
#[inline(always)]
fn log(x: f64) -> f64 {
    let (n, f, _) = exponent_and_mantissa(x);
    let log = n * LN_2 + log_near_one(f);
    let log = if x == 0.0 { f64::NEG_INFINITY } else { log };
    let log = if x == f64::INFINITY { x } else { log };
    if x >= 0.0 { log } else { f64::NAN }
}

/// `x^y`, with the special cases of C: 1 where `y` is 0 or `x` is 1, NaN where `x` is below 0 and `y` is no
/// whole number.
#[inline(always)]
pub(crate) fn pow(x: f32, y: f32) -> f32 {
    let log = log(f64::from(x.abs()));
    // `1^inf` is 1.
    let exponent = if log == 0.0 { 0.0 } else { log * f64::from(y) };
    let exponent = if exponent > 120.0 { 120.0 } else { exponent };
    let exponent = if exponent < -120.0 { -120.0 } else { exponent };
    let (power, expm1) = power_and_expm1(exponent);
    let magnitude = (power * expm1 + power) as f32;
    let (whole, half) = (y.trunc() == y, y * 0.5);
    let odd = whole && (half.trunc() != half);
    let value = if odd {
        magnitude.copysign(x)
    } else {
        magnitude
    };
    let undefined = x < 0.0 && x > f32::NEG_INFINITY && !whole;
    let value = if undefined { f32::NAN } else { value };
    if y == 0.0 || x == 1.0 { 1.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::simd::multiversion;

    /// The largest error in ulp, and where, for `f` compiled as kernels are.
    fn error(
        x: impl Iterator<Item = f32>,
        f: impl Fn(&[f32], &mut [f32]),
        exact: fn(f64) -> f64,
    ) -> (f64, f32) {
        let x: Vec<f32> = x.filter(|x| x.is_finite()).collect();
        let mut y = vec![0.0; x.len()];
        f(&x, &mut y);
        let ulp = |v: f64| {
            let v = (v.abs() as f32).min(f32::MAX.next_down());
            f64::from(v.next_up()) - f64::from(v)
        };
        let errors = x.iter().zip(&y).map(|(&x, &y)| {
            let exact = exact(f64::from(x));
            let overflows = exact.abs() >= f64::from(f32::MAX)
                && f64::from(y) == exact.signum() * f64::INFINITY;
            let both = overflows || exact.is_nan() && y.is_nan() || f64::from(y) == exact;
            let error = if both {
                0.0
            } else {
                (f64::from(y) - exact).abs() / ulp(exact)
            };
            (if error.is_nan() { f64::INFINITY } else { error }, x)
        });
        errors.fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
    }

    /// Every kind of number: all exponents, both signs, and a fine sweep around zero.
    fn numbers() -> impl Iterator<Item = f32> {
        let all = (0..=u32::MAX / 4099).map(|i| f32::from_bits(i * 4099));
        let near = (-200_000..=200_000_i32).map(|i| i as f32 / 8192.0);
        // The multiple of a quarter turn that an `f32` comes nearest to.
        let nearest = 16_367_173.0 * 2.0_f32.powi(72);
        all.chain(near).chain([nearest, -nearest])
    }

    macro_rules! on_slices {
        ($($name:ident: |$x:ident| $value:expr;)*) => {$(
            multiversion! {
                fn $name[I](x: &[f32], y: &mut [f32]) {
                    y.iter_mut().zip(x).for_each(|(y, &$x)| *y = $value);
                }
            }
        )*};
    }
    on_slices! {
        sines: |x| sin(x);
        cosines: |x| cos(x);
        expm1s: |x| expm1(x);
        log1ps: |x| log1p(x);
        cubes: |x| pow(x, 3.0);
        roots: |x| pow(x, 1.0 / 3.0);
        inverses: |x| pow(x, -1.5);
        powers_of_two: |x| pow(2.0, x);
        of_itself: |x| pow(x, x);
    }

    /// A name, the function on slices, and in `f64`.
    type Case = (&'static str, fn(&[f32], &mut [f32]), fn(f64) -> f64);

    #[test]
    fn errors_are_half_an_ulp() {
        let third = |x: f64| x.powf(f64::from(1.0_f32 / 3.0));
        let cases: [Case; 9] = [
            ("sin", sines, f64::sin),
            ("cos", cosines, f64::cos),
            ("expm1", expm1s, f64::exp_m1),
            ("log1p", log1ps, f64::ln_1p),
            ("cube", cubes, |x| x.powi(3)),
            ("root", roots, third),
            ("inverse", inverses, |x| x.powf(-1.5)),
            ("power of two", powers_of_two, f64::exp2),
            ("of itself", of_itself, |x| x.powf(x)),
        ];
        for (name, f, exact) in cases {
            let (error, at) = error(numbers(), f, exact);
            println!("{name}: {error:.3} at {at:e}");
            assert!(error <= 0.51, "{name}: {error} at {at:e}");
        }
    }

    #[test]
    fn special_values_are_as_in_c() {
        let numbers = [
            0.0,
            0.5,
            1.0,
            2.0,
            3.0,
            16_777_215.0,
            16_777_216.0,
            f32::MAX,
            f32::INFINITY,
        ];
        let numbers: Vec<f32> = (numbers.iter().flat_map(|&x| [x, -x]))
            .chain([f32::NAN])
            .collect();
        for &x in &numbers {
            for &y in &numbers {
                let (got, want) = (pow(x, y), f64::from(x).powf(f64::from(y)) as f32);
                let close = (got - want).abs() <= want.abs() * f32::EPSILON;
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(close || same, "{x}^{y} = {got}, not {want}");
            }
        }
        for x in [0.0, -0.0] {
            for f in [sin, expm1, log1p] {
                assert_eq!(f(x).to_bits(), x.to_bits());
            }
            assert_eq!(cos(x).to_bits(), 1.0_f32.to_bits());
        }
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(sin(x).is_nan() && cos(x).is_nan());
        }
        assert!(expm1(f32::NAN).is_nan() && log1p(f32::NAN).is_nan() && log1p(-1.5).is_nan());
        let inf = f32::INFINITY;
        let got = [expm1(inf), expm1(-inf), log1p(inf), log1p(-1.0)];
        assert_eq!(
            got.map(f32::to_bits),
            [inf, -1.0, inf, -inf].map(f32::to_bits)
        );
    }

    #[test]
    fn whole_powers_are_exact() {
        for base in 1..=16_i32 {
            for exponent in 0..=5_i32 {
                for base in [base, -base] {
                    let want = base.pow(exponent as u32) as f32;
                    assert_eq!(pow(base as f32, exponent as f32).to_bits(), want.to_bits());
                }
            }
        }
    }
}
