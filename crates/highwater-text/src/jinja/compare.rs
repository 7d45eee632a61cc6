//! Which values are equal, and which comes first.

use std::cmp::Ordering;
use std::rc::Rc;

use super::error::{Error, Result};
use super::numbers::{self, Number};
use super::run::Run;
use super::value::{Dict, Items, Value, View};

impl Value {
    pub(super) fn number(&self) -> Option<Number> {
        match self {
            Self::Float(number) => Some(Number::Float(*number)),
            other => other.as_int().map(Number::Int),
        }
    }

    /// Whether two things are one; of what has no identity of its own, false.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::None, Value::None) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::List(a), Value::List(b))
            | (Value::Tuple(a), Value::Tuple(b))
            | (Value::Group(a), Value::Group(b)) => Rc::ptr_eq(a, b),
            (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
            (Value::Stream(a), Value::Stream(b)) => Rc::ptr_eq(a, b),
            (Value::Namespace(a), Value::Namespace(b))
            | (Value::Cycler(a), Value::Cycler(b))
            | (Value::Joiner(a), Value::Joiner(b)) => a == b,
            (Value::Loop(a), Value::Loop(b)) => Rc::ptr_eq(a, b),
            (Value::Macro(a), Value::Macro(b)) => Rc::ptr_eq(a, b),
            (Value::Function(a), Value::Function(b)) => a == b,
            (Value::Method(a), Value::Method(b)) => a.1 == b.1 && a.0.is_same_as(&b.0),
            _ => false,
        }
    }

    /// The items of a list or a tuple, and whether it is a list.
    fn items(&self) -> Option<(&Rc<Items>, bool)> {
        match self {
            Self::List(items) => Some((items, true)),
            Self::Tuple(items) | Self::Group(items) => Some((items, false)),
            _ => None,
        }
    }
}

impl Run {
    /// `a == b`.
    pub(super) fn equal(&self, a: &Value, b: &Value) -> Result<bool> {
        self.spend(1)?;
        if let (Some(a), Some(b)) = (a.number(), b.number()) {
            return Ok(numbers::compare(a, b) == Some(Ordering::Equal));
        }
        if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
            self.spend_bytes(a.len().min(b.len()))?;
            return Ok(a == b);
        }
        if let (Some((a, a_is_list)), Some((b, b_is_list))) = (a.items(), b.items()) {
            let same = a_is_list == b_is_list && a.values.len() == b.values.len();
            return Ok(same && self.first_difference(a, b)?.is_none());
        }
        Ok(match (a, b) {
            (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
            (Value::Dict(a), Value::Dict(b)) => self.equal_dicts(a, b)?,
            (Value::Range(a), Value::Range(b)) => {
                let (longs, same) = (a.len(), a.start == b.start && a.step == b.step);
                longs == b.len() && (longs == 0 || same || (longs == 1 && a.start == b.start))
            }
            (Value::View(View::Values, a), Value::View(View::Values, b)) if !Rc::ptr_eq(a, b) => {
                false
            }
            (Value::View(..), Value::View(..)) => {
                return Err(Error::unsupported("a comparison of views of dictionaries"));
            }
            _ => a.is_same_as(b),
        })
    }

    fn equal_dicts(&self, a: &Dict, b: &Dict) -> Result<bool> {
        if a.items.len() != b.items.len() {
            return Ok(false);
        }
        for (key, value) in &a.items {
            let same = match b.get(key)? {
                Some(other) => self.deeper(|| self.equal(value, other))?,
                None => false,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first items that differ, of lists that are as long; else none.
    fn first_difference(&self, a: &Items, b: &Items) -> Result<Option<usize>> {
        for (at, (a, b)) in a.values.iter().zip(&b.values).enumerate() {
            if !self.deeper(|| self.equal(a, b))? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// How `a` and `b` compare, for the operator `sign`; none with NaN.
    pub(super) fn order(&self, a: &Value, b: &Value, sign: &str) -> Result<Option<Ordering>> {
        self.spend(1)?;
        let (a, b) = (a.defined()?, b.defined()?);
        if let (Some(a), Some(b)) = (a.number(), b.number()) {
            return Ok(numbers::compare(a, b));
        }
        if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
            self.spend_bytes(a.len().min(b.len()))?;
            return Ok(Some(a.cmp(b)));
        }
        match (a.items(), b.items()) {
            (Some((a, a_is_list)), Some((b, b_is_list))) if a_is_list == b_is_list => {
                match self.first_difference(a, b)? {
                    Some(at) => self.deeper(|| self.order(&a.values[at], &b.values[at], sign)),
                    None => Ok(Some(a.values.len().cmp(&b.values.len()))),
                }
            }
            _ => {
                if let (Value::View(..), Value::View(..)) = (a, b) {
                    return Err(Error::unsupported("a comparison of views of dictionaries"));
                }
                Err(Error::raised(format!(
                    "'{sign}' not supported between instances of '{}' and '{}'",
                    a.type_name(),
                    b.type_name()
                )))
            }
        }
    }

    /// Sorts by keys, which stay as they are where they are equal.
    pub(super) fn sort<T>(
        &self,
        items: Vec<T>,
        key: impl Fn(&T) -> &Value,
        reverse: bool,
    ) -> Result<Vec<T>> {
        if items
            .iter()
            .any(|it| matches!(key(it), Value::Float(number) if number.is_nan()))
        {
            return Err(Error::unsupported("sorting what is not a number"));
        }
        let mut failure = None;
        let mut sorted = items;
        if reverse {
            sorted.reverse();
        }
        sorted.sort_by(|a, b| {
            if failure.is_some() {
                return Ordering::Equal;
            }
            match self.order(key(a), key(b), "<") {
                Ok(order) => order.unwrap_or(Ordering::Equal),
                Err(error) => {
                    failure = Some(error);
                    Ordering::Equal
                }
            }
        });
        if reverse {
            sorted.reverse();
        }
        failure.map_or(Ok(sorted), Err)
    }

    /// `needle in hay`.
    pub(super) fn contains(&mut self, hay: &Value, needle: &Value) -> Result<bool> {
        match hay {
            Value::Undefined(_) => Ok(false),
            Value::Str(hay) | Value::Markup(hay) => {
                let needle = needle.as_str().ok_or_else(|| {
                    let name = needle.type_name();
                    let problem =
                        format!("'in <string>' requires string as left operand, not {name}");
                    Error::raised(problem)
                })?;
                self.spend_bytes(hay.len())?;
                Ok(hay.contains(&**needle))
            }
            Value::Dict(dict) | Value::View(View::Keys, dict) => Ok(dict.get(needle)?.is_some()),
            Value::Range(range) => match needle.number() {
                Some(Number::Int(number)) => {
                    let (start, length) = (range.start, range.len() as i128);
                    let at = (number - start) / range.step;
                    Ok((number - start) % range.step == 0 && (0..length).contains(&at))
                }
                _ => self.among((0..range.len()).map(|at| range.get(at)), needle),
            },
            Value::Stream(stream) => loop {
                let Some(next) = stream.left.borrow_mut().pop_front() else {
                    return Ok(false);
                };
                if next.is_same_as(needle) || self.equal(&next, needle)? {
                    return Ok(true);
                }
            },
            hay => {
                let values = self.values(hay)?;
                self.among(values.into_iter(), needle)
            }
        }
    }

    fn among(&self, mut values: impl Iterator<Item = Value>, needle: &Value) -> Result<bool> {
        values.try_fold(false, |found, value| {
            Ok(found || value.is_same_as(needle) || self.equal(&value, needle)?)
        })
    }
}
