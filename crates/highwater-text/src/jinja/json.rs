//! `tojson` as transformers has it: what Python's `json.dumps` writes, with letters of all scripts as they are.

use std::fmt::Write;

use super::args::{self, Args};
use super::error::{Error, Result};
use super::numbers;
use super::run::Run;
use super::value::{Dict, Items, Value};

/// The most spaces of a level.
const INDENT_MAX: usize = 64;

/// `value | tojson(...)`.
pub(super) fn filter(run: &mut Run, value: &Value, args: Args) -> Result<String> {
    let parameters = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ascii, indent, separators, sorted] = args.bind("tojson", parameters, 0)?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(text)) if text.len() <= INDENT_MAX => Some(text.to_string()),
        Some(other) => {
            let spaces = args::size(&other)?;
            if spaces > INDENT_MAX {
                let problem = format!("tojson with more than {INDENT_MAX} spaces");
                return Err(Error::unsupported(problem));
            }
            Some(" ".repeat(spaces))
        }
    };
    let between = match separators {
        None | Some(Value::None) => {
            let items = if indent.is_some() { "," } else { ", " };
            [items, ": "].map(str::to_owned)
        }
        Some(both) => {
            let both = run.values(&both)?;
            let [items, keys] = &both[..] else {
                return Err(Error::raised("separators: expected two texts"));
            };
            [
                args::text(items, "separators")?,
                args::text(keys, "separators")?,
            ]
            .map(ToString::to_string)
        }
    };
    let mut writer = Writer {
        run,
        out: String::new(),
        indent,
        between,
        sorted: args::flag(sorted.as_ref(), false),
        ascii: args::flag(ascii.as_ref(), false),
    };
    writer.value(value, 0)?;
    let out = writer.out;
    run.spend_bytes(out.len())?;
    Ok(out)
}

struct Writer<'a> {
    run: &'a Run,
    out: String,
    indent: Option<String>,
    between: [String; 2],
    sorted: bool,
    ascii: bool,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.run.spend(1)?;
        match value {
            Value::Str(text) | Value::Markup(text) => self.string(text),
            Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
                return self.list(items, depth);
            }
            Value::Dict(dict) => return self.dict(dict, depth),
            Value::Float(number) => self.out.push_str(&float(*number)),
            // A string takes all that is written to it.
            Value::Int(number) => drop(write!(self.out, "{number}")),
            Value::Bool(is) => drop(write!(self.out, "{is}")),
            Value::None => self.out.push_str("null"),
            other => {
                let name = other.type_name();
                let problem = format!("Object of type {name} is not JSON serializable");
                return Err(Error::raised(problem));
            }
        }
        Ok(())
    }

    fn list(&mut self, items: &Items, depth: usize) -> Result<()> {
        self.out.push('[');
        for (at, item) in items.values.iter().enumerate() {
            self.begin(at, depth)?;
            self.value(item, depth + 1)?;
        }
        self.end(']', items.values.is_empty(), depth)
    }

    fn dict(&mut self, dict: &Dict, depth: usize) -> Result<()> {
        self.out.push('{');
        let mut items: Vec<&(Value, Value)> = dict.items.iter().collect();
        if self.sorted {
            items = self.run.sort(items, |it| &it.0, false)?;
        }
        for (at, (key, value)) in items.into_iter().enumerate() {
            self.begin(at, depth)?;
            match key {
                Value::Str(text) | Value::Markup(text) => self.string(text),
                Value::Float(number) => self.string(&float(*number)),
                Value::Int(number) => self.string(&number.to_string()),
                Value::Bool(is) => self.string(&is.to_string()),
                Value::None => self.string("null"),
                other => {
                    let name = other.type_name();
                    let problem = format!("keys must be str, int, float, bool or None, not {name}");
                    return Err(Error::raised(problem));
                }
            }
            self.out.push_str(&self.between[1]);
            self.value(value, depth + 1)?;
        }
        self.end('}', dict.items.is_empty(), depth)
    }

    /// What is before an item.
    fn begin(&mut self, at: usize, depth: usize) -> Result<()> {
        if at > 0 {
            self.out.push_str(&self.between[0]);
        }
        self.line(depth + 1)
    }

    fn end(&mut self, bracket: char, empty: bool, depth: usize) -> Result<()> {
        if !empty {
            self.line(depth)?;
        }
        self.out.push(bracket);
        Ok(())
    }

    fn line(&mut self, depth: usize) -> Result<()> {
        if let Some(indent) = &self.indent {
            self.run.spend_bytes(indent.len() * depth)?;
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(&**indent, depth));
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // A string takes all that is written to it.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned();
    }
    numbers::repr(number)
}
