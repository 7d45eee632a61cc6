//! What values of columns are in JSON.

use chrono::{DateTime, SecondsFormat, Utc};
use parquet::basic::Type as Physical;
use serde_json::{Number, Value};

use super::Fault;
use super::footer::{Element, Logical};

/// What the numbers or bytes of a column mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// What their type says.
    Plain,
    Unsigned,
    /// Whole numbers of which so many digits come after the point.
    Decimal(u32),
    /// Days since 1970.
    Date,
    /// So many a second since midnight.
    Time(i64),
    /// So many a second since 1970, and whether in the world's time.
    Timestamp(i64, bool),
    /// UTF-8, or else the file is wrong.
    Text,
    /// What has no form in JSON.
    Other,
}

/// The most digits of decimals, as many as 16 bytes have.
const DIGITS_MAX: i64 = 38;

/// What an element says of its values. What younger programs say comes first.
pub(super) fn meaning(element: &Element, physical: Physical) -> Meaning {
    let of_bytes = matches!(
        physical,
        Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY
    );
    let meaning = match element.logical {
        Some(logical) => of_logical(logical),
        None => of_converted(element),
    };
    match (meaning, physical) {
        (Meaning::Text, Physical::BYTE_ARRAY)
        | (Meaning::Date, Physical::INT32)
        | (Meaning::Timestamp(..), Physical::INT64)
        | (
            Meaning::Unsigned | Meaning::Time(_) | Meaning::Decimal(_),
            Physical::INT32 | Physical::INT64,
        ) => meaning,
        (Meaning::Decimal(_) | Meaning::Other, _) if of_bytes => meaning,
        _ => Meaning::Plain,
    }
}

fn decimal(scale: i64) -> Meaning {
    match u32::try_from(scale) {
        Ok(digits) if scale <= DIGITS_MAX => Meaning::Decimal(digits),
        _ => Meaning::Other,
    }
}

const fn per_second(unit: i64) -> i64 {
    match unit {
        1 => 1_000,
        2 => 1_000_000,
        _ => 1_000_000_000,
    }
}

fn of_logical(logical: Logical) -> Meaning {
    match logical.kind {
        // Text, names of a list, JSON.
        1 | 4 | 12 => Meaning::Text,
        5 => decimal(logical.scale),
        6 => Meaning::Date,
        7 => Meaning::Time(per_second(logical.unit)),
        8 => Meaning::Timestamp(per_second(logical.unit), logical.utc),
        10 if !logical.signed => Meaning::Unsigned,
        // Identifiers, numbers of two bytes.
        14 | 15 => Meaning::Other,
        _ => Meaning::Plain,
    }
}

fn of_converted(element: &Element) -> Meaning {
    match element.converted {
        Some(0 | 4 | 19) => Meaning::Text,
        Some(5) => decimal(element.scale),
        Some(6) => Meaning::Date,
        Some(7) => Meaning::Time(per_second(1)),
        Some(8) => Meaning::Time(per_second(2)),
        Some(9) => Meaning::Timestamp(per_second(1), true),
        Some(10) => Meaning::Timestamp(per_second(2), true),
        Some(11..=14) => Meaning::Unsigned,
        // Lengths of time.
        Some(21) => Meaning::Other,
        _ => Meaning::Plain,
    }
}

/// A whole number of 32 bits.
pub(super) fn of_i32(value: i32, meaning: Meaning) -> Value {
    match meaning {
        Meaning::Unsigned => Value::from(value as u32),
        _ => of_i64(value.into(), meaning),
    }
}

/// A whole number. Times that the calendar does not have stay numbers.
pub(super) fn of_i64(value: i64, meaning: Meaning) -> Value {
    let text = match meaning {
        Meaning::Unsigned => return Value::from(value as u64),
        Meaning::Decimal(digits) => Some(decimal_text(value.into(), digits)),
        Meaning::Date => {
            let seconds = value.checked_mul(86_400);
            let date = seconds.and_then(|seconds| DateTime::<Utc>::from_timestamp(seconds, 0));
            date.map(|date| date.date_naive().to_string())
        }
        Meaning::Time(unit) => moment(value, unit).map(|time| time.time().to_string()),
        Meaning::Timestamp(unit, utc) => moment(value, unit).map(|time| {
            if utc {
                time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
            } else {
                time.naive_utc().to_string()
            }
        }),
        Meaning::Plain | Meaning::Text | Meaning::Other => None,
    };
    text.map_or_else(|| Value::from(value), Value::String)
}

fn moment(value: i64, unit: i64) -> Option<DateTime<Utc>> {
    let rest = value.rem_euclid(unit) * (1_000_000_000 / unit);
    DateTime::from_timestamp(value.div_euclid(unit), rest as u32)
}

/// Nanoseconds of a day and the day, as older programs write times.
pub(super) fn of_int96(parts: [u32; 3]) -> Value {
    /// The first of January 1970 in the count of days that astronomers use.
    const JULIAN_1970: i64 = 2_440_588;
    let nanoseconds = i64::from(parts[0]) | i64::from(parts[1]) << 32;
    let days = i64::from(parts[2]) - JULIAN_1970;
    let seconds = days * 86_400 + nanoseconds.div_euclid(1_000_000_000);
    let rest = nanoseconds.rem_euclid(1_000_000_000) as u32;
    match DateTime::<Utc>::from_timestamp(seconds, rest) {
        Some(time) => Value::String(time.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
        None => Value::Null,
    }
}

/// A number with a fraction; JSON has none that is not finite.
pub(super) fn of_f64(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Bytes: a text where they are one. What is neither a text nor a number (a picture, for instance) is null.
pub(super) fn of_bytes(bytes: &[u8], meaning: Meaning) -> Result<Value, Fault> {
    match (meaning, std::str::from_utf8(bytes)) {
        (Meaning::Decimal(digits), _) => Ok(match integer(bytes) {
            Some(value) => Value::String(decimal_text(value, digits)),
            None => Value::Null,
        }),
        (Meaning::Other, _) => Ok(Value::Null),
        (_, Ok(text)) => Ok(Value::String(text.to_owned())),
        (Meaning::Text, Err(error)) => {
            let at = error.valid_up_to();
            let fault = Fault::new(format!(
                "byte {} (0x{:02x}) is not UTF-8",
                at + 1,
                bytes[at]
            ));
            Err(fault.hint("write texts in UTF-8"))
        }
        _ => Ok(Value::Null),
    }
}

/// A whole number of at most 16 bytes, the highest first.
fn integer(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    let fill = if first & 0x80 == 0 { 0 } else { 0xff };
    let mut all = [fill; 16];
    let start = all.len().checked_sub(bytes.len())?;
    all[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(all))
}

fn decimal_text(value: i128, digits: u32) -> String {
    if digits == 0 {
        return value.to_string();
    }
    let sign = if value < 0 { "-" } else { "" };
    let width = digits as usize + 1;
    let all = format!("{:0>width$}", value.unsigned_abs());
    let (whole, part) = all.split_at(all.len() - digits as usize);
    format!("{sign}{whole}.{part}")
}

#[cfg(test)]
mod tests;
