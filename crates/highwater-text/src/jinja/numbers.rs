//! Python's arithmetic on numbers. Whole numbers of more than 128 bits are refused.

use std::cmp::Ordering;

use super::ast::Operator;
use super::error::{Error, Result};

/// Up to here whole numbers are floats without loss.
const EXACT: i128 = 1 << 53;

#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

/// The whole number that a float is.
#[allow(clippy::float_cmp, reason = "a float is whole or it is not")]
pub(super) fn whole(number: f64) -> Option<i128> {
    let fits = number.trunc() == number && number.abs() < 2f64.powi(126);
    fits.then_some(number as i128)
}

pub(super) fn too_large() -> Error {
    Error::unsupported("a whole number of more than 128 bits")
}

/// A whole number as a float.
pub(super) fn to_float(number: i128) -> Result<f64> {
    let float = number as f64;
    // The conversion rounds as Python's does; beyond it Python raises.
    if float.is_finite() {
        Ok(float)
    } else {
        Err(Error::raised("int too large to convert to float"))
    }
}

fn zero() -> Error {
    Error::raised("division by zero")
}

/// One of the operations on two numbers.
pub(super) fn apply(operator: Operator, a: Number, b: Number) -> Result<Number> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => ints(operator, a, b),
        (a, b) => {
            let (a, b) = (a.float()?, b.float()?);
            let result = floats(operator, a, b)?;
            if a.is_finite() && b.is_finite() && !result.is_finite() {
                // Jinja2 computes constants when it compiles, and fails where the result is not finite.
                return Err(Error::unsupported("a float that is too large"));
            }
            Ok(Number::Float(result))
        }
    }
}

impl Number {
    pub(super) fn float(self) -> Result<f64> {
        match self {
            Self::Int(number) => to_float(number),
            Self::Float(number) => Ok(number),
        }
    }
}

fn ints(operator: Operator, a: i128, b: i128) -> Result<Number> {
    let whole = |result: Option<i128>| result.map(Number::Int).ok_or_else(too_large);
    match operator {
        Operator::Add => whole(a.checked_add(b)),
        Operator::Sub => whole(a.checked_sub(b)),
        Operator::Mul => whole(a.checked_mul(b)),
        Operator::Div | Operator::FloorDiv | Operator::Mod if b == 0 => Err(zero()),
        Operator::Div => {
            if a.abs() > EXACT || b.abs() > EXACT {
                return Err(Error::unsupported("a quotient of numbers beyond 2 ** 53"));
            }
            Ok(Number::Float(a as f64 / b as f64))
        }
        Operator::FloorDiv => whole(a.checked_div_euclid(b).map(|quotient| {
            // Euclid's remainder is never negative; Python's has the sign of the divisor.
            let remainder = a - quotient * b;
            if remainder != 0 && b < 0 {
                quotient - 1
            } else {
                quotient
            }
        })),
        Operator::Mod => {
            let remainder = a.checked_rem(b).unwrap_or(0);
            let other_sign = remainder != 0 && (remainder < 0) != (b < 0);
            Ok(Number::Int(if other_sign {
                remainder + b
            } else {
                remainder
            }))
        }
        Operator::Pow if b < 0 => {
            if a == 0 {
                return Err(Error::raised("0.0 cannot be raised to a negative power"));
            }
            floats(operator, to_float(a)?, to_float(b)?).map(Number::Float)
        }
        Operator::Pow => match a {
            0 | 1 => Ok(Number::Int(if b == 0 { 1 } else { a })),
            -1 => Ok(Number::Int(if b % 2 == 0 { 1 } else { -1 })),
            _ => whole(u32::try_from(b).ok().and_then(|b| a.checked_pow(b))),
        },
    }
}

#[allow(clippy::float_cmp, reason = "Python asks whether the divisor is zero")]
fn floats(operator: Operator, a: f64, b: f64) -> Result<f64> {
    match operator {
        Operator::Add => Ok(a + b),
        Operator::Sub => Ok(a - b),
        Operator::Mul => Ok(a * b),
        Operator::Div | Operator::FloorDiv | Operator::Mod if b == 0.0 => Err(zero()),
        Operator::Div => Ok(a / b),
        Operator::FloorDiv => Ok(floor_and_rest(a, b).0),
        Operator::Mod => Ok(floor_and_rest(a, b).1),
        Operator::Pow => {
            if a == 0.0 && b < 0.0 {
                return Err(Error::raised("0.0 cannot be raised to a negative power"));
            }
            if a < 0.0 && a.is_finite() && b.is_finite() && b.fract() != 0.0 {
                return Err(Error::unsupported("a complex number"));
            }
            let result = a.powf(b);
            if result.is_infinite() && a.is_finite() && b.is_finite() {
                return Err(Error::raised("Numerical result out of range"));
            }
            Ok(result)
        }
    }
}

/// As `float_divmod` of CPython.
#[allow(clippy::float_cmp, reason = "as CPython does it")]
fn floor_and_rest(a: f64, b: f64) -> (f64, f64) {
    let mut rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest == 0.0 {
        rest = 0f64.copysign(b);
    } else if (b < 0.0) != (rest < 0.0) {
        rest += b;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0f64.copysign(a / b), rest);
    }
    let mut floor = quotient.floor();
    if quotient - floor > 0.5 {
        floor += 1.0;
    }
    (floor, rest)
}

/// The order of two numbers, without rounding either; none with NaN.
pub(super) fn compare(a: Number, b: Number) -> Option<Ordering> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
        (Number::Float(a), b) => compare(b, Number::Float(a)).map(Ordering::reverse),
        (Number::Int(a), Number::Float(b)) => {
            let floor = b.floor();
            match whole(floor) {
                Some(whole) if a == whole && floor < b => Some(Ordering::Less),
                Some(whole) => Some(a.cmp(&whole)),
                None => 0f64.partial_cmp(&b),
            }
        }
    }
}

/// `repr` of a float: its shortest digits, with an exponent where it is small or large.
pub(super) fn repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let shortest = format!("{number:e}");
    let (digits, power) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    if (-4..16).contains(&power) {
        let plain = format!("{number}");
        return if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        };
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

/// `int` of a text.
pub(super) fn parse_int(text: &str, base: u32) -> Result<Option<i128>> {
    let text = super::unicode::trim(text);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.is_ascii() {
        let may = digits.chars().any(super::unicode::is_decimal);
        return if may {
            Err(Error::unsupported("int of digits beyond ASCII"))
        } else {
            Ok(None)
        };
    }
    let lower = digits.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefix = prefixes
        .iter()
        .find(|(prefix, radix)| lower.starts_with(prefix) && (base == *radix || base == 0));
    let (body, radix) = match prefix {
        Some((_, radix)) => {
            let body = &lower[2..];
            (body.strip_prefix('_').unwrap_or(body), *radix)
        }
        None if base == 0 => {
            let zeros = lower.bytes().all(|it| matches!(it, b'0' | b'_'));
            if lower.starts_with('0') && !zeros {
                return Ok(None);
            }
            (&lower[..], 10)
        }
        None => (&lower[..], base),
    };
    let fits = body
        .split('_')
        .all(|part| !part.is_empty() && part.chars().all(|c| c.is_digit(radix)));
    if !fits {
        return Ok(None);
    }
    let plain = body.replace('_', "");
    let signed = if negative { format!("-{plain}") } else { plain };
    i128::from_str_radix(&signed, radix)
        .map(Some)
        .map_err(|_| too_large())
}

/// `float` of a text.
pub(super) fn parse_float(text: &str) -> Result<Option<f64>> {
    let text = super::unicode::trim(text);
    if !text.is_ascii() {
        let may = text.chars().any(super::unicode::is_decimal);
        return if may {
            Err(Error::unsupported("float of digits beyond ASCII"))
        } else {
            Ok(None)
        };
    }
    let bytes = text.as_bytes();
    let lone = |at: usize| {
        let digit = |at: Option<usize>| {
            at.and_then(|at| bytes.get(at))
                .is_some_and(u8::is_ascii_digit)
        };
        bytes[at] == b'_' && !(digit(at.checked_sub(1)) && digit(Some(at + 1)))
    };
    if (0..bytes.len()).any(lone) {
        return Ok(None);
    }
    Ok(text.replace('_', "").parse().ok())
}
