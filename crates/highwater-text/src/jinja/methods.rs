//! Which attributes values have, and their methods but for those of texts.

use super::args::{self, Args};
use super::error::{Error, Result};
use super::run::Run;
use super::strings;
use super::value::{Method, Value, View};

/// What a name is of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attribute {
    Method(Method),
    /// A method that changes it, which the sandbox hides.
    Unsafe,
    /// Something that Python has and this program has not.
    Unsupported,
    /// A plain attribute, or nothing.
    Own,
}

const LIST: &[&str] = &["copy", "count", "index"];
const LIST_UNSAFE: &[&str] = &[
    "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort",
];
const TUPLE: &[&str] = &["count", "index"];
const DICT: &[&str] = &["copy", "fromkeys", "get", "items", "keys", "values"];
const DICT_UNSAFE: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];
const INT: &[&str] = &["bit_count", "bit_length", "conjugate"];
const INT_UNSUPPORTED: &[&str] = &["as_integer_ratio", "from_bytes", "to_bytes"];
const FLOAT: &[&str] = &["conjugate", "is_integer"];
const FLOAT_UNSUPPORTED: &[&str] = &["as_integer_ratio", "fromhex", "hex"];
const LOOP: &[&str] = &["changed", "cycle"];
const CYCLER: &[&str] = &["next", "reset"];
const STREAM_UNSUPPORTED: &[&str] = &[
    "close",
    "gi_code",
    "gi_frame",
    "gi_running",
    "gi_suspended",
    "gi_yieldfrom",
    "send",
    "throw",
];

/// What a name is of a value.
pub(super) fn attribute(value: &Value, name: &str) -> Attribute {
    const NONE: &[&str] = &[];
    let (methods, hidden, unsupported) = match value {
        Value::Str(_) => (strings::METHODS, NONE, strings::UNSUPPORTED),
        Value::List(_) => (LIST, LIST_UNSAFE, NONE),
        Value::Tuple(_) | Value::Group(_) | Value::Range(_) => (TUPLE, NONE, NONE),
        Value::Dict(_) => (DICT, DICT_UNSAFE, NONE),
        Value::Bool(_) | Value::Int(_) => (INT, NONE, INT_UNSUPPORTED),
        Value::Float(_) => (FLOAT, NONE, FLOAT_UNSUPPORTED),
        Value::View(View::Values, _) => (NONE, NONE, &["mapping"][..]),
        Value::View(..) => (NONE, NONE, &["isdisjoint", "mapping"][..]),
        Value::Stream(_) => (NONE, NONE, STREAM_UNSUPPORTED),
        Value::Loop(_) => (LOOP, NONE, NONE),
        Value::Cycler(_) => (CYCLER, NONE, NONE),
        Value::Function(super::value::Function::Dict) => (&["fromkeys"][..], NONE, NONE),
        Value::Markup(_) | Value::Function(_) | Value::Method(_) => return Attribute::Unsupported,
        _ => (NONE, NONE, NONE),
    };
    let among = |names: &'static [&'static str]| names.iter().find(|it| **it == name);
    if let Some(method) = among(methods) {
        return Attribute::Method(Method(method));
    }
    if hidden.contains(&name) {
        return Attribute::Unsafe;
    }
    if unsupported.contains(&name) {
        return Attribute::Unsupported;
    }
    Attribute::Own
}

impl Run {
    /// Calls a method of a value.
    #[allow(clippy::too_many_lines, reason = "an arm of each method")]
    pub(super) fn call_method(
        &mut self,
        value: &Value,
        method: Method,
        args: Args,
    ) -> Result<Value> {
        match (value, method.0) {
            (Value::Str(text), name) => self.call_str(&text.clone(), name, args),
            (Value::Dict(dict), "get") => {
                let [key, default] = args.bind("get", ["/key", "/default"], 1)?;
                let found = dict.get(&key.unwrap_or(Value::None))?.cloned();
                Ok(found.or(default).unwrap_or(Value::None))
            }
            (Value::Dict(dict), "items" | "keys" | "values") => {
                args.none(method.0)?;
                let view = match method.0 {
                    "items" => View::Items,
                    "keys" => View::Keys,
                    _ => View::Values,
                };
                Ok(Value::View(view, dict.clone()))
            }
            (Value::Dict(dict), "copy") => {
                args.none("copy")?;
                let copy = super::value::Dict::new(dict.items.iter().cloned())?;
                self.spend(copy.items.len() as u64)?;
                Ok(Value::Dict(copy.into()))
            }
            (Value::Dict(_) | Value::Function(_), "fromkeys") => self.dict_from_keys(args),
            (Value::List(items), "copy") => {
                args.none("copy")?;
                self.spend(items.values.len() as u64)?;
                Value::list(items.values.clone())
            }
            (Value::Range(_) | Value::List(_) | Value::Tuple(_) | Value::Group(_), "count") => {
                let [item] = args.bind("count", ["/value"], 1)?;
                let item = item.unwrap_or(Value::None);
                let mut count = 0;
                for value in self.values(value)? {
                    if value.is_same_as(&item) || self.equal(&value, &item)? {
                        count += 1;
                    }
                }
                Ok(Value::Int(count))
            }
            (Value::Range(_) | Value::List(_) | Value::Tuple(_) | Value::Group(_), "index") => {
                self.index_of(value, args)
            }
            (Value::Bool(_) | Value::Int(_), name) => {
                args.none(name)?;
                let number = value.as_int().unwrap_or(0);
                let magnitude = number.unsigned_abs();
                Ok(Value::Int(match name {
                    "bit_count" => i128::from(magnitude.count_ones()),
                    "bit_length" => i128::from(128 - magnitude.leading_zeros()),
                    _ => number,
                }))
            }
            (Value::Float(number), name) => {
                args.none(name)?;
                Ok(match name {
                    "is_integer" => Value::Bool(number.is_finite() && number.fract().abs() <= 0.0),
                    _ => Value::Float(*number),
                })
            }
            (Value::Cycler(at), name) => {
                args.none(name)?;
                let (items, position) = &mut self.cyclers[*at];
                if name == "reset" {
                    *position = 0;
                    return Ok(Value::None);
                }
                let item = items[*position].clone();
                *position = (*position + 1) % items.len();
                Ok(item)
            }
            (Value::Loop(it), "cycle") => {
                let at = it.borrow().index0;
                let items = args.positional;
                if items.is_empty() || !args.named.is_empty() {
                    return Err(Error::raised("no items for cycling given"));
                }
                let at = usize::try_from(at).unwrap_or(0) % items.len();
                Ok(items[at].clone())
            }
            (Value::Loop(it), "changed") => {
                if !args.named.is_empty() {
                    return Err(Error::raised(
                        "changed() got an unexpected keyword argument",
                    ));
                }
                let now = Value::tuple(args.positional)?;
                let before = it.borrow().changed.clone();
                let same = match before {
                    Some(before) => self.equal(&before, &now)?,
                    None => false,
                };
                if !same {
                    it.borrow_mut().changed = Some(now);
                }
                Ok(Value::Bool(!same))
            }
            (value, name) => {
                let name = format!("{name} of a {}", value.type_name());
                Err(Error::unsupported(name))
            }
        }
    }

    fn index_of(&mut self, value: &Value, args: Args) -> Result<Value> {
        let [item, start, stop] = args.bind("index", ["/value", "/start", "/stop"], 1)?;
        if matches!(value, Value::Range(_)) && start.is_some() {
            return Err(Error::raised("index() takes exactly one argument"));
        }
        let item = item.unwrap_or(Value::None);
        let values = self.values(value)?;
        let length = values.len() as i128;
        let bound = |at: i128| (if at < 0 { at + length } else { at }).clamp(0, length) as usize;
        let start = bound(args::int_or(start.as_ref(), 0)?);
        let stop = bound(args::int_or(stop.as_ref(), length)?);
        for (at, value) in values.iter().enumerate().take(stop).skip(start) {
            if value.is_same_as(&item) || self.equal(value, &item)? {
                return Ok(Value::Int(at as i128));
            }
        }
        Err(Error::raised("the value is not in the list"))
    }

    /// `dict.fromkeys`.
    fn dict_from_keys(&mut self, args: Args) -> Result<Value> {
        let [keys, value] = args.bind("fromkeys", ["/iterable", "/value"], 1)?;
        let value = value.unwrap_or(Value::None);
        let keys = self.values(&keys.unwrap_or(Value::None))?;
        let items = keys.into_iter().map(|key| (key, value.clone()));
        Ok(Value::Dict(super::value::Dict::new(items)?.into()))
    }
}
