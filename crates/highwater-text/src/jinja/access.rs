//! Attributes, items and slices, as Jinja2's immutable sandbox gives them.

use super::error::{Error, Result};
use super::methods::{self, Attribute};
use super::run::Run;
use super::value::{Range, Value};

const FAR: i128 = 1 << 62;

impl Run {
    /// `value.name`: an attribute, or else an item.
    pub(super) fn attribute(&mut self, value: &Value, name: &str) -> Result<Value> {
        self.touch(value);
        if let Some(found) = self.own_attribute(value, name)? {
            return Ok(found);
        }
        if let Value::Dict(dict) = value
            && let Some(found) = dict.get_str(name)
        {
            return Ok(found.clone());
        }
        Ok(missing(value, name))
    }

    /// What Python's `getattr` gives; none where it raises.
    fn own_attribute(&mut self, value: &Value, name: &str) -> Result<Option<Value>> {
        let value = value.defined()?;
        if name.starts_with("__") && !matches!(value, Value::Namespace(_)) {
            let known = matches!(value, Value::Dict(dict) if dict.get_str(name).is_some());
            if known {
                return Err(Error::unsupported(format!("the attribute {name}")));
            }
            return Ok(Some(missing(value, name)));
        }
        Ok(match methods::attribute(value, name) {
            Attribute::Method(method) => Some(Value::Method((value.clone(), method).into())),
            Attribute::Unsafe => Some(Value::undefined(format!(
                "access to attribute '{name}' of '{}' object is unsafe.",
                value.type_name()
            ))),
            Attribute::Unsupported => {
                let name = format!("{name} of a {}", value.type_name());
                return Err(Error::unsupported(name));
            }
            Attribute::Own => self.property(value, name)?,
        })
    }

    /// Attributes that are no methods.
    fn property(&mut self, value: &Value, name: &str) -> Result<Option<Value>> {
        Ok(match (value, name) {
            (Value::Namespace(at), name) => self.namespaces[*at].get_str(name).cloned(),
            (Value::Loop(it), name) => return self.loop_attribute(&it.clone(), name),
            (Value::Bool(_) | Value::Int(_), "real" | "numerator") => {
                value.as_int().map(Value::Int)
            }
            (Value::Bool(_) | Value::Int(_), "imag") => Some(Value::Int(0)),
            (Value::Bool(_) | Value::Int(_), "denominator") => Some(Value::Int(1)),
            (Value::Float(number), "real") => Some(Value::Float(*number)),
            (Value::Float(_), "imag") => Some(Value::Float(0.0)),
            (Value::Range(range), "start") => Some(Value::Int(range.start)),
            (Value::Range(range), "stop") => Some(Value::Int(range.stop)),
            (Value::Range(range), "step") => Some(Value::Int(range.step)),
            (Value::Group(items), "grouper") => items.values.first().cloned(),
            (Value::Group(items), "list") => items.values.get(1).cloned(),
            (Value::Cycler(at), "current") => {
                let (items, position) = &self.cyclers[*at];
                items.get(*position).cloned()
            }
            (Value::Cycler(at), "items") => Some(Value::tuple(self.cyclers[*at].0.clone())?),
            (Value::Cycler(at), "pos") => Some(Value::Int(self.cyclers[*at].1 as i128)),
            (Value::Joiner(at), "sep") => Some(self.joiners[*at].0.clone()),
            (Value::Joiner(at), "used") => Some(Value::Bool(self.joiners[*at].1)),
            (Value::Macro(it), "name") => Some(match &it.code.name {
                Some(name) => Value::Str(name.clone()),
                None => Value::None,
            }),
            (Value::Macro(it), "arguments") => {
                let names = it.code.parameters.iter().cloned().map(Value::Str);
                // A macro's object has a list where its code has a tuple.
                Some(Value::tuple(names.collect())?)
            }
            (Value::Macro(it), "catch_kwargs") => Some(Value::Bool(it.code.kwargs)),
            (Value::Macro(it), "catch_varargs") => Some(Value::Bool(it.code.varargs)),
            (Value::Macro(it), "caller") => Some(Value::Bool(it.code.caller)),
            (Value::Macro(_), "explicit_caller") => Some(Value::Bool(false)),
            _ => None,
        })
    }

    /// `value[key]`: an item, or else an attribute.
    pub(super) fn item(&mut self, value: &Value, key: &Value) -> Result<Value> {
        self.touch(value);
        let found = match value.defined()? {
            Value::Dict(dict) => match dict.get(key) {
                Ok(found) => found.cloned(),
                Err(error) if error.kind == super::error::ErrorKind::Raised => None,
                Err(error) => return Err(error),
            },
            Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
                let at = key.as_int().and_then(|at| index(at, items.values.len()));
                at.and_then(|at| items.values.get(at)).cloned()
            }
            Value::Str(text) => match key.as_int() {
                Some(at) => self.character(text, at)?,
                None => None,
            },
            Value::Markup(_) => {
                return Err(Error::unsupported("an item of escaped text"));
            }
            Value::Range(range) => {
                let at = key.as_int().and_then(|at| index(at, range.len()));
                at.map(|at| range.get(at))
            }
            _ => None,
        };
        if let Some(found) = found {
            return Ok(found);
        }
        if let Some(name) = key.as_str() {
            if let Some(found) = self.own_attribute(value, name)? {
                return Ok(found);
            }
            return Ok(missing(value, name));
        }
        Ok(Value::undefined(format!(
            "{} has no element {}",
            described(value),
            self.repr(key)?
        )))
    }

    fn character(&self, text: &str, at: i128) -> Result<Option<Value>> {
        let one = |text: &str| Some(Value::str(text));
        if text.is_ascii() {
            let at = index(at, text.len());
            return Ok(at.and_then(|at| one(&text[at..=at])));
        }
        self.spend_bytes(text.len())?;
        let at = index(at, text.chars().count());
        let c = at.and_then(|at| text.chars().nth(at));
        Ok(c.and_then(|c| one(c.encode_utf8(&mut [0; 4]))))
    }

    /// `value[start:stop:step]`.
    pub(super) fn slice(&self, value: &Value, bounds: [Value; 3]) -> Result<Value> {
        let value = value.defined()?;
        let [start, stop, step] = bounds.map(|bound| match bound {
            Value::None => Ok(None),
            // No list is longer, so that what is beyond is as good as that.
            bound => bound
                .as_int()
                .map(|it| Some(it.clamp(-FAR, FAR)))
                .ok_or_else(|| {
                    Error::raised(
                        "slice indices must be integers or None or have an __index__ method",
                    )
                }),
        });
        let cut = |length: usize| -> Result<_> { Slice::of(start?, stop?, step?, length) };
        match value {
            Value::List(items) => {
                let slice = cut(items.values.len())?;
                self.spend(slice.length as u64)?;
                let picked = slice.indices().map(|at| items.values[at].clone());
                Value::list(picked.collect())
            }
            Value::Tuple(items) | Value::Group(items) => {
                let slice = cut(items.values.len())?;
                self.spend(slice.length as u64)?;
                let picked = slice.indices().map(|at| items.values[at].clone());
                Value::tuple(picked.collect())
            }
            Value::Str(text) => {
                self.spend_bytes(text.len())?;
                if text.is_ascii() {
                    let slice = cut(text.len())?;
                    if slice.step == 1 {
                        let start = slice.start as usize;
                        return Ok(Value::str(&text[start..start + slice.length]));
                    }
                    let bytes = text.as_bytes();
                    let picked = slice.indices().map(|at| char::from(bytes[at]));
                    return Ok(Value::str(picked.collect::<String>()));
                }
                let letters: Vec<char> = text.chars().collect();
                let picked = cut(letters.len())?.indices().map(|at| letters[at]);
                Ok(Value::str(picked.collect::<String>()))
            }
            Value::Range(range) => {
                let slice = cut(range.len())?;
                Ok(Value::Range(Range {
                    start: range.start + slice.start * range.step,
                    stop: range.start + slice.stop * range.step,
                    step: range.step * slice.step,
                }))
            }
            Value::Markup(_) => Err(Error::unsupported("a slice of escaped text")),
            other => {
                let name = other.type_name();
                Err(Error::raised(format!(
                    "'{name}' object is not subscriptable"
                )))
            }
        }
    }
}

/// Where an index is that may count from the end.
fn index(at: i128, length: usize) -> Option<usize> {
    let at = if at < 0 { at + length as i128 } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

fn described(value: &Value) -> String {
    match value {
        Value::None => "None".to_owned(),
        other => format!("'{} object'", other.type_name()),
    }
}

fn missing(value: &Value, name: &str) -> Value {
    Value::undefined(format!("{} has no attribute '{name}'", described(value)))
}

/// A slice within a length, as `slice.indices` has it.
pub(super) struct Slice {
    pub(super) start: i128,
    stop: i128,
    step: i128,
    pub(super) length: usize,
}

impl Slice {
    pub(super) fn of(
        start: Option<i128>,
        stop: Option<i128>,
        step: Option<i128>,
        length: usize,
    ) -> Result<Self> {
        let (step, length) = (step.unwrap_or(1), length as i128);
        if step == 0 {
            return Err(Error::raised("slice step cannot be zero"));
        }
        let [low, high] = if step > 0 {
            [0, length]
        } else {
            [-1, length - 1]
        };
        let clamp = |bound: i128| {
            let bound = if bound < 0 {
                bound.saturating_add(length)
            } else {
                bound
            };
            bound.clamp(low, high)
        };
        let start = start.map_or(if step > 0 { low } else { high }, clamp);
        let stop = stop.map_or(if step > 0 { high } else { low }, clamp);
        let span = if step > 0 { stop - start } else { start - stop };
        let count = if span > 0 {
            (span - 1) / step.abs() + 1
        } else {
            0
        };
        Ok(Self {
            start,
            stop,
            step,
            length: usize::try_from(count).unwrap_or(0),
        })
    }

    fn indices(&self) -> impl Iterator<Item = usize> + use<> {
        let (start, step) = (self.start, self.step);
        (0..self.length).map(move |at| (start + at as i128 * step) as usize)
    }
}
