//! Values as Python has them. All but namespaces, cyclers, joiners, loops and streams never change.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{For, Macro};
use super::error::{Error, Result};

/// How deep lists and the like may be within each other.
const DEPTH_MAX: u32 = 200;
/// Up to so many items a dictionary is searched one by one.
const SEARCHED: usize = 8;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// What is not there, with what is said of that.
    Undefined(Arc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    /// Text of `escape` or `safe`, which escapes what is added to it.
    Markup(Arc<str>),
    List(Rc<Items>),
    Tuple(Rc<Items>),
    /// A pair of `groupby`, whose parts have names.
    Group(Rc<Items>),
    Dict(Rc<Dict>),
    View(View, Rc<Dict>),
    Range(Range),
    /// What can be gone through once.
    Stream(Rc<Stream>),
    Namespace(usize),
    Cycler(usize),
    Joiner(usize),
    Loop(Rc<RefCell<Loop>>),
    Macro(Rc<MacroValue>),
    Function(Function),
    /// A method of a value.
    Method(Rc<(Value, Method)>),
}

/// The items of a list or a tuple.
#[derive(Debug)]
pub(super) struct Items {
    pub(super) values: Vec<Value>,
    depth: u32,
}

/// What of a dictionary a view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Keys,
    Values,
    Items,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: i128,
    pub(super) stop: i128,
    pub(super) step: i128,
}

/// A generator or an iterator: what is left of it.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) left: RefCell<VecDeque<Value>>,
    depth: u32,
}

/// A macro, or the body of a `{% call %}`, with the names that were visible there.
#[derive(Debug)]
pub(super) struct MacroValue {
    pub(super) code: Arc<Macro>,
    pub(super) scope: usize,
}

/// A method's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Method(pub(super) &'static str);

/// A loop that is under way.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) code: Arc<For>,
    pub(super) source: Source,
    /// How many items there are, where that is known without going through them.
    pub(super) length: Option<usize>,
    /// The names that were visible where it stands.
    pub(super) scope: usize,
    pub(super) index0: i128,
    pub(super) depth0: i128,
    pub(super) current: Option<Value>,
    pub(super) before: Option<Value>,
    /// The next item, if it was looked at.
    pub(super) after: Peeked,
    pub(super) changed: Option<Value>,
}

/// What was seen of the next item.
#[derive(Clone, Debug)]
pub(super) enum Peeked {
    Nothing,
    Item(Value),
    End,
}

/// What a loop goes through.
#[derive(Debug)]
pub(super) enum Source {
    Values(std::vec::IntoIter<Value>),
    Stream(Rc<Stream>),
}

/// What templates may call without making it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    Lipsum,
    RaiseException,
    StrftimeNow,
}

/// Items by keys, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Dict {
    pub(super) items: Vec<(Value, Value)>,
    by_key: BTreeMap<Key, usize>,
    depth: u32,
}

/// A key such that equal keys are equal: `1`, `1.0` and `true` are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    None,
    Undefined,
    Int(i128),
    Float(u64),
    Str(Arc<str>),
    Tuple(Vec<Key>),
}

impl Value {
    pub(super) fn str(text: impl Into<Arc<str>>) -> Self {
        Self::Str(text.into())
    }

    pub(super) fn undefined(problem: impl Into<Arc<str>>) -> Self {
        Self::Undefined(problem.into())
    }

    pub(super) fn list(values: Vec<Value>) -> Result<Self> {
        Items::new(values).map(Self::List)
    }

    pub(super) fn tuple(values: Vec<Value>) -> Result<Self> {
        Items::new(values).map(Self::Tuple)
    }

    pub(super) fn stream(values: impl IntoIterator<Item = Value>) -> Result<Self> {
        let left: VecDeque<_> = values.into_iter().collect();
        let depth = deeper(&mut left.iter())?;
        let left = RefCell::new(left);
        Ok(Self::Stream(Rc::new(Stream { left, depth })))
    }

    /// How many containers are within each other.
    fn depth(&self) -> u32 {
        match self {
            Self::List(it) | Self::Tuple(it) | Self::Group(it) => it.depth,
            Self::Dict(it) | Self::View(_, it) => it.depth,
            Self::Stream(it) => it.depth,
            Self::Method(it) => it.0.depth() + 1,
            _ => 0,
        }
    }

    /// The text of a string.
    pub(super) fn as_str(&self) -> Option<&Arc<str>> {
        match self {
            Self::Str(text) | Self::Markup(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number, which truth values are, too.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bool(is) => Some(i128::from(*is)),
            _ => None,
        }
    }

    /// What Python calls its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Markup(_) => "Markup",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Group(_) => "_GroupTuple",
            Self::Dict(_) => "dict",
            Self::View(View::Keys, _) => "dict_keys",
            Self::View(View::Values, _) => "dict_values",
            Self::View(View::Items, _) => "dict_items",
            Self::Range(_) => "range",
            Self::Stream(_) => "generator",
            Self::Namespace(_) => "TemplateNamespace",
            Self::Cycler(_) => "Cycler",
            Self::Joiner(_) => "Joiner",
            Self::Loop(_) => "LoopContext",
            Self::Macro(_) => "Macro",
            Self::Function(_) => "function",
            Self::Method(_) => "method",
        }
    }

    /// An error if it is not there.
    pub(super) fn defined(&self) -> Result<&Self> {
        match self {
            Self::Undefined(problem) => Err(Error::raised(&**problem)),
            other => Ok(other),
        }
    }
}

fn deeper(values: &mut dyn Iterator<Item = &Value>) -> Result<u32> {
    let depth = values.map(Value::depth).max().unwrap_or(0) + 1;
    if depth > DEPTH_MAX {
        let problem = format!("more than {DEPTH_MAX} lists within each other");
        return Err(Error::too_much(problem));
    }
    Ok(depth)
}

impl Items {
    pub(super) fn new(values: Vec<Value>) -> Result<Rc<Self>> {
        let depth = deeper(&mut values.iter())?;
        Ok(Rc::new(Self { values, depth }))
    }
}

impl Range {
    pub(super) fn len(self) -> usize {
        let (low, high) = if self.step > 0 {
            (self.start, self.stop)
        } else {
            (self.stop, self.start)
        };
        if low >= high {
            return 0;
        }
        let steps = (high - low - 1) / self.step.abs() + 1;
        usize::try_from(steps).unwrap_or(usize::MAX)
    }

    pub(super) fn get(self, at: usize) -> Value {
        Value::Int(self.start + at as i128 * self.step)
    }
}

impl Dict {
    /// A dictionary of items; a later one replaces an earlier one with the same key, in its place.
    pub(super) fn new(items: impl IntoIterator<Item = (Value, Value)>) -> Result<Self> {
        let mut dict = Self::default();
        for (key, value) in items {
            dict.insert(key, value)?;
        }
        Ok(dict)
    }

    pub(super) fn insert(&mut self, key: Value, value: Value) -> Result<()> {
        let hashed = key.hashed()?;
        self.depth = self.depth.max(deeper(&mut [&key, &value].into_iter())?);
        if let Some(at) = self.position(&hashed) {
            self.items[at].1 = value;
            return Ok(());
        }
        self.items.push((key, value));
        if self.items.len() > SEARCHED {
            self.index(hashed)?;
        }
        Ok(())
    }

    /// Notes where the last item is, and the others if none is noted.
    fn index(&mut self, last: Key) -> Result<()> {
        if self.by_key.is_empty() {
            for (at, (key, _)) in self.items.iter().enumerate() {
                self.by_key.insert(key.hashed()?, at);
            }
        }
        self.by_key.insert(last, self.items.len() - 1);
        Ok(())
    }

    fn position(&self, key: &Key) -> Option<usize> {
        if self.by_key.is_empty() {
            let same = |(other, _): &(Value, Value)| match (other, key) {
                (Value::Str(a), Key::Str(b)) => a == b,
                (Value::Str(_), _) | (_, Key::Str(_)) if !matches!(other, Value::Markup(_)) => {
                    false
                }
                _ => other.hashed().is_ok_and(|other| other == *key),
            };
            return self.items.iter().position(same);
        }
        self.by_key.get(key).copied()
    }

    pub(super) fn get(&self, key: &Value) -> Result<Option<&Value>> {
        let at = self.position(&key.hashed()?);
        Ok(at.map(|at| &self.items[at].1))
    }

    pub(super) fn get_str(&self, key: &str) -> Option<&Value> {
        let at = if self.by_key.is_empty() {
            let same = |(other, _): &(Value, Value)| other.as_str().is_some_and(|it| **it == *key);
            self.items.iter().position(same)
        } else {
            self.by_key.get(&Key::Str(key.into())).copied()
        };
        at.map(|at| &self.items[at].1)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Value> {
        self.items.iter().map(|(key, _)| key)
    }
}

impl Value {
    /// It as a key.
    pub(super) fn hashed(&self) -> Result<Key> {
        Ok(match self {
            Self::None => Key::None,
            Self::Undefined(_) => Key::Undefined,
            Self::Bool(is) => Key::Int(i128::from(*is)),
            Self::Int(number) => Key::Int(*number),
            Self::Float(number) => match super::numbers::whole(*number) {
                Some(whole) => Key::Int(whole),
                None => Key::Float(number.to_bits()),
            },
            Self::Str(text) | Self::Markup(text) => Key::Str(text.clone()),
            Self::Tuple(items) | Self::Group(items) => {
                let keys = items.values.iter().map(Self::hashed);
                Key::Tuple(keys.collect::<Result<_>>()?)
            }
            Self::List(_) | Self::Dict(_) | Self::View(View::Keys | View::Items, _) => {
                let name = self.type_name();
                return Err(Error::raised(format!("unhashable type: '{name}'")));
            }
            _ => {
                return Err(Error::unsupported(format!(
                    "a {} as a key",
                    self.type_name()
                )));
            }
        })
    }
}
