//! The methods of texts that look at letters, and take nothing else.

use super::error::{Error, Result};
use super::unicode::{
    self, is_cased, is_decimal, is_digit, is_letter, is_numeric, is_printable, is_space,
    is_upper_or_title,
};
use super::value::Value;

/// One of these methods.
pub(super) fn call(text: &str, name: &str) -> Result<Value> {
    let all = |fits: &dyn Fn(char) -> Result<bool>| -> Result<Value> {
        let mut is = !text.is_empty();
        for c in text.chars() {
            is = is && fits(c)?;
        }
        Ok(Value::Bool(is))
    };
    match name {
        "upper" => Ok(Value::str(text.to_uppercase())),
        "lower" => Ok(Value::str(text.to_lowercase())),
        "casefold" => unicode::casefold(text).map(Value::str),
        "capitalize" => Ok(Value::str(capitalized(text))),
        "title" => Ok(Value::str(titled(text))),
        "swapcase" => swapped(text).map(Value::str),
        "isascii" => Ok(Value::Bool(text.is_ascii())),
        "isalpha" => all(&|c| Ok(is_letter(c))),
        "isdecimal" => all(&|c| Ok(is_decimal(c))),
        "isdigit" => all(&is_digit),
        "isnumeric" => all(&is_numeric),
        "isalnum" => all(&|c| Ok(is_letter(c) || is_numeric(c)?)),
        "isspace" => all(&|c| Ok(is_space(c))),
        "isprintable" => Ok(Value::Bool(text.chars().all(is_printable))),
        "islower" | "isupper" => Ok(Value::Bool(has_case(text, name == "isupper"))),
        "istitle" => Ok(Value::Bool(is_title(text))),
        _ => Err(Error::unsupported(format!("{name} of a str"))),
    }
}

/// The first letter a capital, the others none.
pub(super) fn capitalized(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    if let Some(first) = rest.next() {
        unicode::title_case(first, &mut out);
    }
    push_lower(text, text.len() - rest.as_str().len(), text.len(), &mut out);
    out
}

/// Part of a text in lower case: what a sigma becomes depends on what is around it.
fn push_lower(text: &str, from: usize, to: usize, out: &mut String) {
    let part = &text[from..to];
    if !part.contains('Σ') {
        out.push_str(&part.to_lowercase());
        return;
    }
    for (at, c) in part.char_indices() {
        if c != 'Σ' {
            out.extend(c.to_lowercase());
            continue;
        }
        let ignored = |c: &char| matches!(c, '\'' | '.' | ':' | '^' | '`' | '\u{ad}' | '\u{b7}');
        let before = text[..from + at].chars().rev().find(|c| !ignored(c));
        let after = text[from + at + c.len_utf8()..]
            .chars()
            .find(|c| !ignored(c));
        let last = before.is_some_and(is_cased) && !after.is_some_and(is_cased);
        out.push(if last { 'ς' } else { 'σ' });
    }
}

fn titled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for (at, c) in text.char_indices() {
        if inside {
            push_lower(text, at, at + c.len_utf8(), &mut out);
        } else {
            unicode::title_case(c, &mut out);
        }
        inside = is_cased(c);
    }
    out
}

fn swapped(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if c.is_uppercase() {
            push_lower(text, at, at + c.len_utf8(), &mut out);
        } else if c.is_lowercase() {
            out.extend(c.to_uppercase());
        } else if is_cased(c) {
            return Err(Error::unsupported(format!("swapcase of {c:?}")));
        } else {
            out.push(c);
        }
    }
    Ok(out)
}

/// `isupper` or `islower`.
pub(super) fn has_case(text: &str, upper: bool) -> bool {
    let other = |c: char| {
        if upper {
            c.is_lowercase() || (is_upper_or_title(c) && !c.is_uppercase())
        } else {
            is_upper_or_title(c)
        }
    };
    let wanted = |c: char| {
        if upper {
            c.is_uppercase()
        } else {
            c.is_lowercase()
        }
    };
    text.chars().any(wanted) && !text.chars().any(other)
}

fn is_title(text: &str) -> bool {
    let (mut inside, mut found) = (false, false);
    for c in text.chars() {
        if is_upper_or_title(c) {
            if inside {
                return false;
            }
            (inside, found) = (true, true);
        } else if c.is_lowercase() {
            if !inside {
                return false;
            }
            found = true;
        } else {
            inside = false;
        }
    }
    found
}
