//! `format % values`.

use super::args;
use super::error::{Error, Result};
use super::repr::ascii;
use super::run::Run;
use super::spec;
use super::value::Value;

/// One conversion of a format.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "a format has so many flags")]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

/// What is filled in, in order.
struct Given<'a> {
    values: Vec<Value>,
    next: usize,
    mapping: Option<&'a Value>,
}

impl Given<'_> {
    fn next(&mut self) -> Result<Value> {
        let value = self.values.get(self.next).cloned();
        self.next += 1;
        value.ok_or_else(|| Error::raised("not enough arguments for format string"))
    }
}

/// A format with values filled in.
#[allow(
    clippy::too_many_lines,
    reason = "the parts of a conversion, one after the other"
)]
pub(super) fn format(run: &mut Run, format: &str, values: &Value) -> Result<String> {
    let mut given = Given {
        values: match values {
            Value::Tuple(items) | Value::Group(items) => items.values.clone(),
            other => vec![other.clone()],
        },
        next: 0,
        mapping: match values {
            Value::Dict(_) | Value::List(_) | Value::Range(_) | Value::Undefined(_) => Some(values),
            _ => None,
        },
    };
    let mut out = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let named = rest.strip_prefix('(').map(name).transpose()?;
        let named = match named {
            Some((name, after)) => {
                rest = after;
                let Some(Value::Dict(dict)) = given.mapping else {
                    return Err(Error::raised("format requires a mapping"));
                };
                let value = dict.get_str(name).cloned();
                let value = value.ok_or_else(|| Error::raised(format!("KeyError: '{name}'")))?;
                Some(value)
            }
            None => None,
        };
        let mut conversion = Conversion::default();
        rest = flags(rest, &mut conversion);
        let star = |given: &mut Given<'_>| match given.next()? {
            Value::Int(number) => Ok(number),
            _ => Err(Error::raised("* wants int")),
        };
        if let Some(after) = rest.strip_prefix('*') {
            let width = star(&mut given)?;
            conversion.left |= width < 0;
            let width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
            (conversion.width, rest) = (spec::width(width)?, after);
        } else {
            (conversion.width, rest) = number(rest)?;
        }
        if let Some(after) = rest.strip_prefix('.') {
            let precision;
            if let Some(after) = after.strip_prefix('*') {
                let number = usize::try_from(star(&mut given)?).unwrap_or(0);
                (precision, rest) = (spec::width(number)?, after);
            } else {
                (precision, rest) = number(after)?;
            }
            conversion.precision = Some(precision);
        }
        rest = rest.strip_prefix(['h', 'l', 'L']).unwrap_or(rest);
        let Some(kind) = rest.chars().next() else {
            return Err(Error::raised("incomplete format"));
        };
        rest = &rest[kind.len_utf8()..];
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match named {
            Some(value) => {
                given.next = given.values.len();
                value
            }
            None => given.next()?,
        };
        let text = converted(run, &value, kind, &conversion)?;
        run.spend_bytes(text.len())?;
        out.push_str(&text);
    }
    out.push_str(rest);
    run.spend_bytes(out.len())?;
    if given.next < given.values.len() && given.mapping.is_none() {
        return Err(Error::raised(
            "not all arguments converted during string formatting",
        ));
    }
    Ok(out)
}

/// A name up to its closing bracket.
fn name(text: &str) -> Result<(&str, &str)> {
    let mut open = 1;
    for (at, c) in text.char_indices() {
        match c {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Ok((&text[..at], &text[at + 1..]));
        }
    }
    Err(Error::raised("incomplete format key"))
}

fn flags<'a>(mut rest: &'a str, conversion: &mut Conversion) -> &'a str {
    while let Some(flag) = rest.chars().next() {
        match flag {
            '-' => conversion.left = true,
            '+' => conversion.plus = true,
            ' ' => conversion.space = true,
            '#' => conversion.alternate = true,
            '0' => conversion.zero = true,
            _ => break,
        }
        rest = &rest[1..];
    }
    rest
}

fn number(text: &str) -> Result<(usize, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    if end == 0 {
        return Ok((0, text));
    }
    Ok((
        spec::width(text[..end].parse().unwrap_or(usize::MAX))?,
        &text[end..],
    ))
}

fn converted(run: &Run, value: &Value, kind: char, how: &Conversion) -> Result<String> {
    match kind {
        's' | 'r' | 'a' => {
            let text = match kind {
                's' => run.text(value)?.to_string(),
                'r' => run.repr(value)?,
                _ => ascii(&run.repr(value)?),
            };
            if matches!(value, Value::Markup(_)) {
                return Err(Error::unsupported("escaped text in a format"));
            }
            let cut: String = match how.precision {
                Some(most) => text.chars().take(most).collect(),
                None => text,
            };
            Ok(how.padded("", &cut, false))
        }
        'c' => {
            let text = match value.defined()? {
                Value::Str(text) if text.chars().count() == 1 => text.to_string(),
                other => {
                    let code =
                        args::int(other).map_err(|_| Error::raised("%c requires int or char"))?;
                    let c = u32::try_from(code).ok().and_then(char::from_u32);
                    c.ok_or_else(|| Error::raised("%c arg not in range(0x110000)"))?
                        .to_string()
                }
            };
            Ok(how.padded("", &text, false))
        }
        'd' | 'i' | 'u' | 'o' | 'x' | 'X' => how.int(value, kind),
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let number = value.defined()?.number();
            let number = number
                .ok_or_else(|| Error::raised("must be real number"))?
                .float()?;
            let text = spec::float(number, kind, how.precision.unwrap_or(6), how.alternate)?;
            let negative = number.is_sign_negative() && !number.is_nan();
            Ok(how.padded(how.sign(negative), &text, true))
        }
        kind => Err(Error::raised(format!(
            "unsupported format character {kind:?}"
        ))),
    }
}

impl Conversion {
    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            _ => "",
        }
    }

    fn int(&self, value: &Value, kind: char) -> Result<String> {
        let number = match value.defined()? {
            Value::Float(number) if matches!(kind, 'd' | 'i' | 'u') => {
                if !number.is_finite() {
                    return Err(Error::raised("cannot convert float to integer"));
                }
                super::numbers::whole(number.trunc()).ok_or_else(super::numbers::too_large)?
            }
            other => args::int(other).map_err(|_| {
                let name = other.type_name();
                Error::raised(format!("%{kind} format: a number is required, not {name}"))
            })?,
        };
        let mut digits = spec::digits(number.unsigned_abs(), kind);
        if let Some(least) = self.precision {
            digits = format!("{}{digits}", "0".repeat(least.saturating_sub(digits.len())));
        }
        let prefix = match kind {
            'x' | 'X' | 'o' if self.alternate => format!("0{kind}"),
            _ => String::new(),
        };
        let head = format!("{}{prefix}", self.sign(number < 0));
        Ok(self.padded(&head, &digits, true))
    }

    fn padded(&self, head: &str, body: &str, is_number: bool) -> String {
        let missing = self.width.saturating_sub(head.len() + body.chars().count());
        if self.left {
            format!("{head}{body}{}", " ".repeat(missing))
        } else if self.zero && is_number {
            format!("{head}{}{body}", "0".repeat(missing))
        } else {
            format!("{}{head}{body}", " ".repeat(missing))
        }
    }
}
