//! Filters of numbers.

use crate::jinja::args::{self, Args};
use crate::jinja::ast::Operator;
use crate::jinja::error::{Error, Result};
use crate::jinja::numbers::{self, Number};
use crate::jinja::run::Run;
use crate::jinja::value::Value;

/// The most places that are rounded to.
const PLACES_MAX: i128 = 300;

pub(super) fn apply(run: &mut Run, name: &str, value: &Value, args: Args) -> Result<Value> {
    match name {
        "abs" => {
            args.none(name)?;
            match value.defined()? {
                Value::Float(number) => Ok(Value::Float(number.abs())),
                other => {
                    let number = other.as_int().ok_or_else(|| {
                        let name = other.type_name();
                        Error::raised(format!("bad operand type for abs(): '{name}'"))
                    })?;
                    number
                        .checked_abs()
                        .map(Value::Int)
                        .ok_or_else(numbers::too_large)
                }
            }
        }
        "int" => {
            let [default, base] = args.bind(name, ["default", "base"], 0)?;
            let default = default.unwrap_or(Value::Int(0));
            let read = int(value, base.as_ref())?;
            Ok(read.map_or(default, Value::Int))
        }
        "float" => {
            let [default] = args.bind(name, ["default"], 0)?;
            let default = default.unwrap_or(Value::Float(0.0));
            Ok(float(value)?.map_or(default, Value::Float))
        }
        "round" => round(run, value, args),
        _ => {
            let [binary] = args.bind(name, ["binary"], 0)?;
            let bytes = float(value)?;
            let bytes = bytes.ok_or_else(|| Error::raised("could not convert to float"))?;
            file_size(bytes, args::flag(binary.as_ref(), false)).map(Value::str)
        }
    }
}

/// A whole number, or none where the filter takes its default.
fn int(value: &Value, base: Option<&Value>) -> Result<Option<i128>> {
    let truncated = |number: f64| {
        if !number.is_finite() {
            return Ok(None);
        }
        numbers::whole(number.trunc())
            .map(Some)
            .ok_or_else(numbers::too_large)
    };
    match value.defined()? {
        Value::Str(text) | Value::Markup(text) => {
            let base = args::int_or(base, 10)?;
            let base = u32::try_from(base)
                .ok()
                .filter(|it| *it == 0 || (2..=36).contains(it));
            let read = match base {
                Some(base) => numbers::parse_int(text, base)?,
                None => None,
            };
            if read.is_some() {
                return Ok(read);
            }
            match numbers::parse_float(text)? {
                Some(number) => truncated(number),
                None => Ok(None),
            }
        }
        Value::Float(number) if number.is_infinite() => {
            // `int` raises what the filter does not expect there.
            Err(Error::raised("cannot convert float infinity to integer"))
        }
        Value::Float(number) => truncated(*number),
        other => Ok(other.as_int()),
    }
}

/// A float, or none where the filter takes its default.
fn float(value: &Value) -> Result<Option<f64>> {
    match value.defined()? {
        Value::Str(text) | Value::Markup(text) => numbers::parse_float(text),
        other => other.number().map(Number::float).transpose(),
    }
}

fn round(run: &mut Run, value: &Value, args: Args) -> Result<Value> {
    let [precision, method] = args.bind("round", ["precision", "method"], 0)?;
    let precision = precision.unwrap_or(Value::Int(0));
    let method = method.unwrap_or_else(|| Value::str("common"));
    let method = args::text(&method, "round")?.clone();
    let value = value.defined()?;
    let number = value.number().ok_or_else(|| {
        let name = value.type_name();
        Error::raised(format!("type {name} doesn't define __round__ method"))
    });
    match &*method {
        "common" => {
            let places = match &precision {
                Value::None => None,
                other => Some(args::int(other)?),
            };
            match (number?, places) {
                (Number::Int(number), places) => {
                    round_int(number, places.unwrap_or(0)).map(Value::Int)
                }
                (Number::Float(number), None) => {
                    let rounded = number.round_ties_even();
                    numbers::whole(rounded)
                        .map(Value::Int)
                        .ok_or_else(numbers::too_large)
                }
                (Number::Float(number), Some(places)) => {
                    round_float(number, places).map(Value::Float)
                }
            }
        }
        "ceil" | "floor" => {
            let power = run.binary(Operator::Pow, &Value::Int(10), &precision)?;
            let scaled = run.binary(Operator::Mul, value, &power)?;
            let whole = match scaled.number() {
                Some(Number::Float(number)) => {
                    let whole = if &*method == "ceil" {
                        number.ceil()
                    } else {
                        number.floor()
                    };
                    numbers::whole(whole).ok_or_else(numbers::too_large)?
                }
                Some(Number::Int(number)) => number,
                None => return Err(Error::raised("must be real number")),
            };
            run.binary(Operator::Div, &Value::Int(whole), &power)
        }
        _ => Err(Error::raised("method must be common, ceil or floor")),
    }
}

fn round_int(number: i128, places: i128) -> Result<i128> {
    if places >= 0 {
        return Ok(number);
    }
    let unit = u32::try_from(-places)
        .ok()
        .and_then(|places| 10i128.checked_pow(places));
    let Some(unit) = unit else {
        return Ok(0);
    };
    // Halves go to the even neighbour.
    let (quotient, rest) = (number.div_euclid(unit), number.rem_euclid(unit));
    let up = rest * 2 > unit || (rest * 2 == unit && quotient % 2 != 0);
    (quotient + i128::from(up))
        .checked_mul(unit)
        .ok_or_else(numbers::too_large)
}

fn round_float(number: f64, places: i128) -> Result<f64> {
    if !number.is_finite() || places > PLACES_MAX {
        return Ok(number);
    }
    if places < 0 {
        return Err(Error::unsupported("rounding a float to tens and more"));
    }
    let text = format!("{number:.*}", places as usize);
    text.parse()
        .map_err(|_| Error::raised("it cannot be rounded"))
}

fn file_size(bytes: f64, binary: bool) -> Result<String> {
    let (base, units) = if binary {
        (
            1024.0f64,
            ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"],
        )
    } else {
        (1000.0f64, ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"])
    };
    if (bytes - 1.0).abs() <= 0.0 {
        return Ok("1 Byte".to_owned());
    }
    if bytes < base {
        if !bytes.is_finite() {
            return Err(Error::raised("cannot convert float to integer"));
        }
        return Ok(format!("{:.0} Bytes", bytes.trunc() + 0.0));
    }
    if bytes.is_nan() {
        return Err(Error::unsupported("the size of what is not a number"));
    }
    // The powers are whole numbers, which the division rounds once.
    let mut unit = base;
    for (at, name) in units.iter().enumerate() {
        unit *= base;
        if bytes < unit || at + 1 == units.len() {
            let size = base * bytes / unit;
            return Ok(format!(
                "{} {name}",
                if size.is_finite() {
                    format!("{size:.1}")
                } else {
                    "inf".to_owned()
                }
            ));
        }
    }
    Err(Error::raised("no unit is large enough"))
}
