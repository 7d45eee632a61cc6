//! One JSON object, and what is wrong where there is none.

use std::path::Path;

use serde_json::{Map, Value};

use super::Fault;
use super::source::breaks;
use crate::{Position, TextError};

mod unique;
pub(super) mod weight;

use unique::{TWICE, Unique};

/// Objects of no more bytes are small in memory whatever is in them.
const LIGHT_BYTES: usize = 64 << 10;
/// What a record may look like.
const EXPECTED: &str = r#"an object like {"messages": [...]} or {"text": "..."}"#;

/// Where a piece of JSON starts.
pub(super) struct Start<'a> {
    pub(super) path: &'a Path,
    /// The line, from 1.
    pub(super) line: u64,
    /// Bytes of that line before it.
    pub(super) column: u64,
    /// Which element of a list it is, from 1.
    pub(super) element: Option<u64>,
}

impl Start<'_> {
    pub(super) fn whole(&self) -> Position {
        match self.element {
            Some(element) => Position::Element(element),
            None => Position::Line(self.line),
        }
    }

    /// Where byte `at` of the piece is, from 0.
    fn column(&self, text: &[u8], at: usize) -> Position {
        let before = &text[..at.min(text.len())];
        let lines = breaks(before);
        let column = match before.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => before.len() - end - 1,
            None => before.len() + self.column as usize,
        };
        Position::Column(self.line + lines, column as u64 + 1)
    }
}

/// The fields of an object.
///
/// # Errors
/// [`TextError`] that says where and, for what is often met, why.
pub(super) fn object(text: &[u8], start: &Start<'_>) -> Result<Map<String, Value>, TextError> {
    if text.len() > LIGHT_BYTES {
        weight::check(text).map_err(|fault| fault.at(start.path, start.whole()))?;
    }
    match serde_json::from_slice(text) {
        Ok(Unique(Value::Object(fields))) => Ok(fields),
        Ok(Unique(other)) => Err(other_value(&other).at(start.path, start.whole())),
        Err(error) => Err(diagnose(text, start, &error)),
    }
}

/// The value of a text that stands in a field, or what is wrong with it.
pub(crate) fn embedded(text: &str) -> Result<Value, String> {
    if text.len() > LIGHT_BYTES {
        weight::check(text.as_bytes()).map_err(|fault| fault.problem)?;
    }
    match serde_json::from_str(text) {
        Ok(Unique(value)) => Ok(value),
        Err(error) => Err(error.to_string()),
    }
}

/// What is wrong with a piece that ends too early, apart from that.
pub(super) fn before_end(text: &[u8], start: &Start<'_>) -> Option<TextError> {
    weight::check(text).ok()?;
    let error = serde_json::from_slice::<Value>(text).err()?;
    // The end itself may also divide a character.
    let utf8 = std::str::from_utf8(text).err();
    let is_wrong = utf8.is_some_and(|utf8| utf8.error_len().is_some());
    let is_divided = utf8.is_some() && !is_wrong;
    (is_wrong || !error.is_eof() && !is_divided).then(|| diagnose(text, start, &error))
}

fn diagnose(text: &[u8], start: &Start<'_>, error: &serde_json::Error) -> TextError {
    let at_byte = |at: usize, mut fault: Fault| {
        if let Some(element) = start.element {
            fault.problem = format!("element {element}: {}", fault.problem);
        }
        fault.at(start.path, start.column(text, at))
    };
    if let Err(utf8) = std::str::from_utf8(text) {
        let at = utf8.valid_up_to();
        let fault = Fault::new(format!("byte 0x{:02x} is not UTF-8", text[at]));
        let hint = "convert the file, for example: iconv -f LATIN1 -t UTF-8 FILE > NEW";
        return at_byte(at, fault.hint(hint));
    }
    let at = if error.is_eof() {
        text.len()
    } else {
        offset(text, error.line(), error.column())
    };
    at_byte(at, syntax(text, at, error, start.element.is_none()))
}

/// What is JSON, but no object.
fn other_value(value: &Value) -> Fault {
    let found = match value {
        Value::Array(_) => "a list",
        Value::String(_) => "a string",
        Value::Bool(_) => "a truth value",
        Value::Null => "null",
        Value::Number(_) => "a number",
        Value::Object(_) => "another",
    };
    let fault = Fault::new(format!("expected {EXPECTED}, found {found}"));
    let inner = value
        .as_str()
        .map(serde_json::from_str::<Map<String, Value>>);
    match inner {
        Some(Ok(_)) => fault.hint("the string is JSON itself: the object was encoded twice"),
        _ => fault.hint("give it a name: {\"text\": ...}"),
    }
}

/// The byte that an error of the parser is at; it counts lines and columns from 1.
fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let mut start = 0;
    for _ in 1..line {
        let end = text[start..].iter().position(|&byte| byte == b'\n');
        start += end.map_or(0, |end| end + 1);
    }
    (start + column.saturating_sub(1)).min(text.len().saturating_sub(1))
}

/// What is wrong at a byte, and what to do about what is often met.
fn syntax(text: &[u8], at: usize, error: &serde_json::Error, of_lines: bool) -> Fault {
    let said = error.to_string();
    let said = said
        .rsplit_once(" at line ")
        .map_or(&*said, |(said, _)| said);
    if said.starts_with(TWICE) {
        return Fault::new(said)
            .hint("of two values one would be lost: keep one, or rename the other");
    }
    let invalid = |what: &str| Fault::new(format!("invalid JSON: {what}"));
    if error.is_eof() {
        let fault = invalid("it ends in the middle");
        return fault.hint(match text.trim_ascii().first() {
            Some(b'[') if of_lines => {
                "each line must be an object; let the name of a file that is one list end in .json"
            }
            _ if of_lines => {
                "each line must be a complete object, with \\n for line breaks in strings; if it is the last line, \
                copy the file again"
            }
            _ => "copy the file again",
        });
    }
    let word = word(text, at);
    match word {
        "NaN" | "nan" | "Infinity" | "-Infinity" | "inf" | "-inf" => {
            return invalid(&format!("{word} is not a number in JSON")).hint(
                "write null instead, or leave the field out; json.dumps(.., allow_nan=False) finds where it comes from",
            );
        }
        "None" | "True" | "False" => {
            return invalid(&format!("{word} is of Python"))
                .hint("write objects with json.dumps(..), not with str(..)");
        }
        _ => {}
    }
    let byte = text.get(at).copied().unwrap_or_default();
    if byte == b'\'' {
        return invalid("a single quote where a double one belongs")
            .hint("write objects with json.dumps(..), not with str(..)");
    }
    let (what, hint) = if said.contains("trailing comma") {
        ("a comma with nothing after it", "remove the last comma")
    } else if said.contains("control character") {
        (
            "a line break, tab or other control character within a string",
            "within strings write them \\n and \\t, as json.dumps(..) does",
        )
    } else if said.contains("trailing characters") && byte == b',' {
        (
            "a comma after the object",
            "remove the commas between lines, or put [ before the first and ] after the last and name the file .json",
        )
    } else if said.contains("trailing characters") {
        (
            "something follows the object",
            "write one object on each line",
        )
    } else if said.contains("recursion limit") {
        ("more than 127 levels within each other", "flatten it")
    } else if said.contains("hex escape") {
        (
            "half of a character (a lone surrogate)",
            "clean texts with text.encode('utf-8', 'replace').decode()",
        )
    } else if byte == b'/' || byte == b'#' {
        ("JSON has no comments", "remove the comment")
    } else {
        return invalid(said).hint("write it with a library for JSON, such as json.dumps(..)");
    };
    invalid(what).hint(hint)
}

/// The letters around a byte, with a sign before them.
fn word(text: &[u8], at: usize) -> &str {
    let is_letter = |&&byte: &&u8| byte.is_ascii_alphabetic();
    let before = text[..at].iter().rev().take_while(is_letter).count();
    let after = text[at..].iter().take_while(is_letter).count();
    let mut start = at - before;
    if start > 0 && text[start - 1] == b'-' {
        start -= 1;
    }
    // Letters and signs of ASCII are UTF-8.
    std::str::from_utf8(&text[start..at + after]).unwrap_or_default()
}

#[cfg(test)]
mod tests;
