//! JSON as model folders have it, read strictly: a field that stands twice is refused, since parsers differ in which
//! one counts.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Numbers of other languages that JSON has no words for.
const NO_JSON: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// Parses an object.
///
/// # Errors
/// What is wrong with it, with line and column.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, String> {
    match value(text)? {
        Value::Object(fields) => Ok(fields),
        Value::Array(_) => Err("it is a list, not an object".to_owned()),
        _ => Err("it is a single value, not an object".to_owned()),
    }
}

/// Parses a value.
///
/// # Errors
/// As [`object`].
pub(crate) fn value(text: &str) -> Result<Value, String> {
    match serde_json::from_str::<Strict>(text) {
        Ok(strict) => Ok(strict.0),
        Err(error) => Err(name_number(text, &error).unwrap_or_else(|| error.to_string())),
    }
}

/// The same of bytes.
///
/// # Errors
/// As [`object`], and for text that is not UTF-8.
pub(crate) fn value_of(bytes: &[u8]) -> Result<Value, String> {
    value(std::str::from_utf8(bytes).map_err(|error| not_utf8(&error))?)
}

/// What is said of text that is not UTF-8.
pub(crate) fn not_utf8(error: &std::str::Utf8Error) -> String {
    format!("it is not UTF-8, from byte {} on", error.valid_up_to())
}

/// Says which number it is that the parser stopped at, if it is one that Python writes and JSON does not have.
fn name_number(text: &str, error: &serde_json::Error) -> Option<String> {
    let line = text.lines().nth(error.line().checked_sub(1)?)?;
    // The parser may be a letter further than where the number begins.
    let starts = error.column().saturating_sub(2)..=error.column();
    let found = starts.filter_map(|at| line.get(at..)).find_map(|rest| {
        let number = NO_JSON
            .into_iter()
            .find(|number| rest.starts_with(number))?;
        Some(number)
    })?;
    let (line, column) = (error.line(), error.column());
    Some(format!(
        "`{found}` is not a number in JSON, at line {line} column {column}"
    ))
}

/// A value, no object of which has a field twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that is too large"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if fields.contains_key(&name) {
                let name: String = name.chars().take(80).collect();
                return Err(A::Error::custom(format!("`{name}` stands there twice")));
            }
            let Strict(value) = map.next_value()?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_stand_twice_are_refused_at_any_depth() {
        for (text, told) in [
            (r#"{"a": 1, "a": 1}"#, "`a` stands there twice"),
            (r#"{"a": {"b": 1, "b": 2}}"#, "`b` stands there twice"),
            (
                r#"{"a": [{"b": 1}, {"c": 1, "c": 2}]}"#,
                "`c` stands there twice",
            ),
            (r#"{"a": NaN}"#, "`NaN` is not a number in JSON, at line 1"),
            (
                "{\"a\":\n 1, \"b\": Infinity}",
                "`Infinity` is not a number in JSON, at line 2",
            ),
            (r#"{"a": -Infinity}"#, "`-Infinity` is not a number in JSON"),
            (r#"{"a": 1e999}"#, "number out of range"),
            ("[]", "a list, not an object"),
            ("3", "a single value, not an object"),
            ("", "line 1"),
            ("{", "line 1"),
            (&"[".repeat(100_000), "line 1"),
        ] {
            let error = object(text).unwrap_err();
            assert!(error.contains(told), "{text:.40}: {error}");
        }
        let text =
            r#"{"a": [1, -2, 0.5, null, true, "x"], "b": {"a": 1}, "c": 18446744073709551615}"#;
        let plain: Value = serde_json::from_str(text).unwrap();
        assert_eq!(Value::from(object(text).unwrap()), plain);
        let error = value_of(b"{\"a\": \"\xff\"}").unwrap_err();
        assert!(error.contains("not UTF-8, from byte 7"), "{error}");
    }
}
