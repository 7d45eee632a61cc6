//! Values as text: Python's `str` and `repr`.

use std::fmt::Write;
use std::sync::Arc;

use super::error::{Error, Result};
use super::numbers;
use super::run::Run;
use super::unicode::is_printable;
use super::value::{Value, View};

impl Run {
    /// `str(value)`.
    pub(super) fn text(&self, value: &Value) -> Result<Arc<str>> {
        Ok(match value {
            Value::Str(text) | Value::Markup(text) => text.clone(),
            Value::Undefined(_) => "".into(),
            other => self.repr(other)?.into(),
        })
    }

    /// `repr(value)`.
    pub(super) fn repr(&self, value: &Value) -> Result<String> {
        let mut out = String::new();
        self.write_repr(value, &mut out)?;
        Ok(out)
    }

    fn write_repr(&self, value: &Value, out: &mut String) -> Result<()> {
        let before = out.len();
        match value {
            Value::Undefined(_) => out.push_str("Undefined"),
            Value::None => out.push_str("None"),
            Value::Bool(true) => out.push_str("True"),
            Value::Bool(false) => out.push_str("False"),
            // A string takes all that is written to it.
            Value::Int(number) => drop(write!(out, "{number}")),
            Value::Float(number) => out.push_str(&numbers::repr(*number)),
            Value::Str(text) => quoted(text, out),
            Value::Markup(text) => {
                out.push_str("Markup(");
                quoted(text, out);
                out.push(')');
            }
            Value::List(items) => self.write_items(&items.values, ["[", "]"], out)?,
            Value::Tuple(items) | Value::Group(items) => {
                let end = if items.values.len() == 1 { ",)" } else { ")" };
                self.write_items(&items.values, ["(", end], out)?;
            }
            Value::Dict(dict) => self.write_dict(&dict.items, out)?,
            Value::View(View::Keys, dict) => {
                let keys: Vec<_> = dict.keys().cloned().collect();
                self.write_items(&keys, ["dict_keys([", "])"], out)?;
            }
            Value::View(View::Values, dict) => {
                let values: Vec<_> = dict.items.iter().map(|(_, value)| value.clone()).collect();
                self.write_items(&values, ["dict_values([", "])"], out)?;
            }
            Value::View(View::Items, _) => {
                let items = self.values(value)?;
                self.write_items(&items, ["dict_items([", "])"], out)?;
            }
            Value::Range(range) => {
                let _ = write!(out, "range({}, {}", range.start, range.stop);
                if range.step != 1 {
                    let _ = write!(out, ", {}", range.step);
                }
                out.push(')');
            }
            Value::Namespace(at) => {
                out.push_str("<Namespace ");
                self.deeper(|| self.write_dict(&self.namespaces[*at].items, out))?;
                out.push('>');
            }
            Value::Macro(it) => {
                let Some(name) = &it.code.name else {
                    out.push_str("<Macro anonymous>");
                    return Ok(());
                };
                out.push_str("<Macro ");
                quoted(name, out);
                out.push('>');
            }
            Value::Stream(_)
            | Value::Cycler(_)
            | Value::Joiner(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_) => {
                // Python writes where it lies in memory.
                let name = value.type_name();
                return Err(Error::unsupported(format!("writing a {name} as text")));
            }
        }
        self.spend_bytes(out.len() - before)
    }

    fn write_items(&self, items: &[Value], around: [&str; 2], out: &mut String) -> Result<()> {
        out.push_str(around[0]);
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            self.deeper(|| self.write_repr(item, out))?;
        }
        out.push_str(around[1]);
        Ok(())
    }

    fn write_dict(&self, items: &[(Value, Value)], out: &mut String) -> Result<()> {
        out.push('{');
        for (at, (key, value)) in items.iter().enumerate() {
            if at > 0 {
                out.push_str(", ");
            }
            self.deeper(|| self.write_repr(key, out))?;
            out.push_str(": ");
            self.deeper(|| self.write_repr(value, out))?;
        }
        out.push('}');
        Ok(())
    }
}

/// `repr` of a text.
pub(super) fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => {
                let code = c as u32;
                // A string takes all that is written to it.
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// `ascii(value)`: its `repr` with all that is not ASCII escaped.
pub(super) fn ascii(repr: &str) -> String {
    let mut out = String::with_capacity(repr.len());
    for c in repr.chars() {
        let code = c as u32;
        // A string takes all that is written to it.
        let _ = match code {
            0..=0x7f => write!(out, "{c}"),
            0x80..=0xff => write!(out, "\\x{code:02x}"),
            0x100..=0xffff => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
    }
    out
}
