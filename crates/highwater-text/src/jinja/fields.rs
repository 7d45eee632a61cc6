//! `str.format`.

use std::sync::Arc;

use super::error::{Error, Result};
use super::repr::ascii;
use super::run::Run;
use super::spec::Spec;
use super::value::Value;

type Named = [(Arc<str>, Value)];

/// How fields without a name are counted: by themselves, until one is numbered.
struct Counter(Option<usize>);

/// A format with values filled in.
pub(super) fn format(run: &mut Run, text: &str, values: &[Value], named: &Named) -> Result<String> {
    formatted(run, text, values, named, &mut Counter(Some(0)), 2)
}

fn formatted(
    run: &mut Run,
    text: &str,
    values: &[Value],
    named: &Named,
    counter: &mut Counter,
    depth: usize,
) -> Result<String> {
    if depth == 0 {
        return Err(Error::raised("Max string recursion exceeded"));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out.push_str(brace);
            rest = after;
            continue;
        }
        if brace == "}" {
            return Err(Error::raised("Single '}' encountered in format string"));
        }
        let end = closing(rest)?;
        let field = &rest[..end];
        rest = &rest[end + 1..];
        let (head, spec) = halves(field);
        let (name, conversion) = match head.split_once('!') {
            Some((name, conversion)) => (name, Some(conversion)),
            None => (head, None),
        };
        let value = find(run, name, values, named, counter)?;
        let value = match conversion {
            None => value,
            Some("s") => Value::Str(run.text(&value)?),
            Some("r") => Value::str(run.repr(&value)?),
            Some("a") => Value::str(ascii(&run.repr(&value)?)),
            Some(other) => {
                return Err(Error::raised(format!(
                    "Unknown conversion specifier {other:?}"
                )));
            }
        };
        let spec = formatted(run, spec, values, named, counter, depth - 1)?;
        let written = laid_out(run, &value, &spec)?;
        run.spend_bytes(written.len())?;
        out.push_str(&written);
    }
    out.push_str(rest);
    run.spend_bytes(out.len())?;
    Ok(out)
}

/// Where the brace is that ends a field.
fn closing(text: &str) -> Result<usize> {
    let (mut open, mut bracket) = (1, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' => bracket = true,
            ']' => bracket = false,
            _ if bracket => {}
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Ok(at);
        }
    }
    Err(Error::raised("expected '}' before end of string"))
}

/// A field's name with its conversion, and its specification.
fn halves(field: &str) -> (&str, &str) {
    let mut bracket = false;
    for (at, c) in field.char_indices() {
        match c {
            '[' => bracket = true,
            ']' => bracket = false,
            ':' if !bracket => return (&field[..at], &field[at + 1..]),
            _ => {}
        }
    }
    (field, "")
}

fn find(
    run: &mut Run,
    name: &str,
    values: &[Value],
    named: &Named,
    counter: &mut Counter,
) -> Result<Value> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let counted;
    let name = if name.is_empty() {
        let Some(next) = counter.0.as_mut() else {
            return Err(Error::raised(
                "cannot switch from manual field specification to automatic field numbering",
            ));
        };
        counted = next.to_string();
        *next += 1;
        &counted[..]
    } else {
        if digits(name) {
            if counter.0.is_some_and(|next| next > 0) {
                return Err(Error::raised(
                    "cannot switch from manual field specification to automatic field numbering",
                ));
            }
            counter.0 = None;
        }
        name
    };
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at(end);
    let mut value = if digits(first) {
        let at: usize = first.parse().unwrap_or(usize::MAX);
        let value = values.get(at).cloned();
        value.ok_or_else(|| {
            Error::raised("Replacement index out of range for positional args tuple")
        })?
    } else {
        let found = named.iter().find(|(other, _)| **other == *first);
        let found = found.ok_or_else(|| Error::raised(format!("KeyError: '{first}'")))?;
        found.1.clone()
    };
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            if end == 0 {
                return Err(Error::raised("Empty attribute in format string"));
            }
            value = run.attribute(&value, &after[..end])?;
            rest = &after[end..];
        } else {
            let after = rest.strip_prefix('[').unwrap_or(rest);
            let end = after
                .find(']')
                .ok_or_else(|| Error::raised("Missing ']' in format string"))?;
            let key = &after[..end];
            if key.is_empty() {
                return Err(Error::raised("Empty attribute in format string"));
            }
            let key = match key.parse() {
                Ok(number) if digits(key) => Value::Int(number),
                _ => Value::str(key),
            };
            value = run.item(&value, &key)?;
            rest = &after[end + 1..];
            if !rest.is_empty() && !rest.starts_with(['.', '[']) {
                return Err(Error::raised(
                    "Only '.' or '[' may follow ']' in format field specifier",
                ));
            }
        }
    }
    Ok(value)
}

/// `format(value, spec)`.
fn laid_out(run: &Run, value: &Value, spec: &str) -> Result<String> {
    if matches!(value, Value::Markup(_)) {
        return Err(Error::unsupported("escaped text in a format"));
    }
    if spec.is_empty() {
        return Ok(run.text(value)?.to_string());
    }
    match value {
        Value::Str(text) => Spec::parse(spec)?.text(text),
        Value::Float(number) => Spec::parse(spec)?.float(*number),
        other => {
            let number = other.as_int().ok_or_else(|| {
                let name = other.type_name();
                Error::raised(format!(
                    "unsupported format string passed to {name}.__format__"
                ))
            })?;
            Spec::parse(spec)?.int(number)
        }
    }
}
