//! Filters of lists and the like.

use std::sync::Arc;

use crate::jinja::args::{self, Args};
use crate::jinja::ast::Operator;
use crate::jinja::error::{Error, Result};
use crate::jinja::run::Run;
use crate::jinja::unicode::is_decimal;
use crate::jinja::value::{Items, Value, View};

#[allow(clippy::too_many_lines, reason = "an arm of each filter")]
pub(super) fn apply(run: &mut Run, name: &str, value: &Value, args: Args) -> Result<Value> {
    match name {
        "length" | "count" => {
            args.none("len")?;
            run.length_of(value)
                .map(|length| Value::Int(length as i128))
        }
        "list" => {
            args.none(name)?;
            Value::list(run.values(value)?)
        }
        "first" => {
            args.none(name)?;
            if let Value::Stream(stream) = value {
                let first = stream.left.borrow_mut().pop_front();
                return Ok(first.unwrap_or_else(empty));
            }
            Ok(run.values(value)?.into_iter().next().unwrap_or_else(empty))
        }
        "last" => {
            args.none(name)?;
            if matches!(value, Value::Stream(_)) {
                return Err(Error::raised("'generator' object is not reversible"));
            }
            Ok(run.values(value)?.pop().unwrap_or_else(empty))
        }
        "reverse" => {
            args.none(name)?;
            match value {
                Value::Str(text) => Ok(Value::str(text.chars().rev().collect::<String>())),
                Value::Markup(_) => Err(Error::unsupported("reverse of escaped text")),
                value => {
                    let mut values = run.values(value)?;
                    values.reverse();
                    match value {
                        Value::Stream(_) => Value::list(values),
                        _ => Value::stream(values),
                    }
                }
            }
        }
        "items" => {
            args.none(name)?;
            match value {
                Value::Undefined(_) => Value::stream([]),
                Value::Dict(dict) => {
                    Value::stream(run.values(&Value::View(View::Items, dict.clone()))?)
                }
                _ => Err(Error::raised("Can only get item pairs from a mapping.")),
            }
        }
        "dictsort" => dict_sort(run, value, args),
        "sort" => {
            let [reverse, case, attribute] =
                args.bind(name, ["reverse", "case_sensitive", "attribute"], 0)?;
            let case = args::flag(case.as_ref(), false);
            let getters = Getter::several(attribute.as_ref())?;
            let mut keyed = Vec::new();
            for value in run.values(value)? {
                let parts = getters
                    .iter()
                    .map(|getter| Ok(folded(getter.get(run, &value)?, case)));
                let key = Value::list(parts.collect::<Result<_>>()?)?;
                keyed.push((key, value));
            }
            let sorted = run.sort(keyed, |it| &it.0, args::flag(reverse.as_ref(), false))?;
            Value::list(sorted.into_iter().map(|it| it.1).collect())
        }
        "unique" => {
            let [case, attribute] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
            let case = args::flag(case.as_ref(), false);
            let getter = Getter::of(attribute.as_ref(), None)?;
            let (mut seen, mut kept) = (std::collections::BTreeSet::new(), Vec::new());
            for value in run.values(value)? {
                if seen.insert(folded(getter.get(run, &value)?, case).hashed()?) {
                    kept.push(value);
                }
            }
            Value::stream(kept)
        }
        "min" | "max" => {
            let [case, attribute] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
            let case = args::flag(case.as_ref(), false);
            let getter = Getter::of(attribute.as_ref(), None)?;
            let (mut best, sign) = (
                None::<(Value, Value)>,
                if name == "min" { "<" } else { ">" },
            );
            for value in run.values(value)? {
                let key = folded(getter.get(run, &value)?, case);
                let better = match &best {
                    None => true,
                    Some((best, _)) => {
                        let order = run.order(&key, best, sign)?;
                        order.is_some_and(|it| {
                            if name == "min" {
                                it.is_lt()
                            } else {
                                it.is_gt()
                            }
                        })
                    }
                };
                if better {
                    best = Some((key, value));
                }
            }
            Ok(best.map_or_else(empty, |best| best.1))
        }
        "sum" => {
            let [attribute, start] = args.bind(name, ["attribute", "start"], 0)?;
            let getter = Getter::of(attribute.as_ref(), None)?;
            let mut sum = start.unwrap_or(Value::Int(0));
            if sum.as_str().is_some() {
                return Err(Error::raised("sum() can't sum strings"));
            }
            for value in run.values(value)? {
                let value = getter.get(run, &value)?;
                sum = run.binary(Operator::Add, &sum, &value)?;
            }
            Ok(sum)
        }
        "slice" => slices(run, value, args),
        "batch" => batches(run, value, args),
        "groupby" => groups(run, value, args),
        "map" => map(run, value, args),
        _ => select(run, name, value, args),
    }
}

fn empty() -> Value {
    Value::undefined("the sequence was empty")
}

/// A key that does not tell capitals from other letters, unless it should.
fn folded(value: Value, case_sensitive: bool) -> Value {
    match &value {
        Value::Str(text) | Value::Markup(text) if !case_sensitive => {
            Value::str(text.to_lowercase())
        }
        _ => value,
    }
}

impl Run {
    /// `len(value)`.
    pub(in crate::jinja) fn length_of(&mut self, value: &Value) -> Result<usize> {
        match value {
            Value::Undefined(_) => Ok(0),
            Value::Str(text) | Value::Markup(text) => {
                self.spend_bytes(text.len())?;
                Ok(text.chars().count())
            }
            Value::List(items) | Value::Tuple(items) | Value::Group(items) => {
                Ok(items.values.len())
            }
            Value::Dict(dict) | Value::View(_, dict) => Ok(dict.items.len()),
            Value::Range(range) => Ok(range.len()),
            Value::Loop(it) => match self.loop_attribute(it, "length")? {
                Some(Value::Int(length)) => Ok(length as usize),
                _ => Ok(0),
            },
            other => {
                let name = other.type_name();
                Err(Error::raised(format!(
                    "object of type '{name}' has no len()"
                )))
            }
        }
    }
}

/// Takes a part of a value, by a path such as `function.name`.
struct Getter {
    path: Vec<Value>,
    default: Option<Value>,
}

impl Getter {
    fn of(attribute: Option<&Value>, default: Option<Value>) -> Result<Self> {
        let path = match attribute {
            None | Some(Value::None) => Vec::new(),
            Some(Value::Str(path)) => {
                let parts = path.split('.').map(|part| {
                    if part.is_empty() || !part.chars().all(is_decimal) {
                        return Ok(Value::str(part));
                    }
                    let number = part.parse().map(Value::Int);
                    number.map_err(|_| Error::unsupported(format!("the index {part}")))
                });
                parts.collect::<Result<_>>()?
            }
            Some(other) => vec![other.clone()],
        };
        let default = default.filter(|it| !matches!(it, Value::None));
        Ok(Self { path, default })
    }

    /// Several, with commas between.
    fn several(attribute: Option<&Value>) -> Result<Vec<Self>> {
        match attribute {
            Some(Value::Str(paths)) => {
                let each = paths
                    .split(',')
                    .map(|path| Self::of(Some(&Value::str(path)), None));
                each.collect()
            }
            other => Ok(vec![Self::of(other, None)?]),
        }
    }

    fn get(&self, run: &mut Run, value: &Value) -> Result<Value> {
        let mut value = value.clone();
        for part in &self.path {
            value = run.item(&value, part)?;
            if let (Value::Undefined(_), Some(default)) = (&value, &self.default) {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

fn dict_sort(run: &mut Run, value: &Value, args: Args) -> Result<Value> {
    let [case, by, reverse] = args.bind("dictsort", ["case_sensitive", "by", "reverse"], 0)?;
    let by = by.unwrap_or_else(|| Value::str("key"));
    let at = match by.as_str().map(|by| &**by) {
        Some("key") => 0,
        Some("value") => 1,
        _ => {
            return Err(Error::raised(
                "You can only sort by either \"key\" or \"value\"",
            ));
        }
    };
    let case = args::flag(case.as_ref(), false);
    let Value::Dict(dict) = value.defined()? else {
        return Err(Error::raised("dictsort of what has no items"));
    };
    let mut keyed = Vec::new();
    for (key, value) in &dict.items {
        let sorted_by = if at == 0 { key } else { value };
        let pair = Value::tuple(vec![key.clone(), value.clone()])?;
        keyed.push((folded(sorted_by.clone(), case), pair));
    }
    let sorted = run.sort(keyed, |it| &it.0, args::flag(reverse.as_ref(), false))?;
    Value::list(sorted.into_iter().map(|it| it.1).collect())
}

fn slices(run: &mut Run, value: &Value, args: Args) -> Result<Value> {
    let [count, fill] = args.bind("slice", ["slices", "fill_with"], 1)?;
    let count = args::int(&count.unwrap_or(Value::None))?;
    let values = run.values(value)?;
    if count == 0 {
        return Err(Error::raised("integer modulo by zero"));
    }
    let count = args::size(&Value::Int(count))?;
    run.spend(count as u64)?;
    let (each, longer) = (values.len() / count.max(1), values.len() % count.max(1));
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    let mut left = values.into_iter();
    let slices = (0..count).map(|at| {
        let mut slice: Vec<_> = left
            .by_ref()
            .take(each + usize::from(at < longer))
            .collect();
        if at >= longer {
            slice.extend(fill.clone());
        }
        Value::list(slice)
    });
    Value::stream(slices.collect::<Result<Vec<_>>>()?)
}

fn batches(run: &mut Run, value: &Value, args: Args) -> Result<Value> {
    let [count, fill] = args.bind("batch", ["linecount", "fill_with"], 1)?;
    let count = count.unwrap_or(Value::None);
    let count = match count.number() {
        Some(_) => args::int(&count)?,
        // No number of items is equal to what is no number.
        None => -1,
    };
    let (mut batches, mut batch) = (Vec::new(), Vec::new());
    for value in run.values(value)? {
        if batch.len() as i128 == count {
            batches.push(Value::list(std::mem::take(&mut batch))?);
        }
        batch.push(value);
    }
    if !batch.is_empty() {
        if let Some(fill) = fill.filter(|fill| !matches!(fill, Value::None)) {
            let missing = args::size(&Value::Int(count - batch.len() as i128))?;
            run.spend(missing as u64)?;
            batch.extend(std::iter::repeat_n(fill, missing));
        }
        batches.push(Value::list(batch)?);
    }
    Value::stream(batches)
}

fn groups(run: &mut Run, value: &Value, args: Args) -> Result<Value> {
    let [attribute, default, case] =
        args.bind("groupby", ["attribute", "default", "case_sensitive"], 1)?;
    let case = args::flag(case.as_ref(), false);
    let getter = Getter::of(attribute.as_ref(), default)?;
    let mut keyed = Vec::new();
    for value in run.values(value)? {
        keyed.push((folded(getter.get(run, &value)?, case), value));
    }
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, value) in run.sort(keyed, |it| &it.0, false)? {
        match groups.last_mut() {
            Some((last, values)) if run.equal(last, &key)? => values.push(value),
            _ => groups.push((key, vec![value])),
        }
    }
    let mut out = Vec::new();
    for (key, values) in groups {
        let key = match values.first() {
            Some(first) if !case => getter.get(run, first)?,
            _ => key,
        };
        out.push(Value::Group(Items::new(vec![key, Value::list(values)?])?));
    }
    Value::list(out)
}

fn map(run: &mut Run, value: &Value, mut args: Args) -> Result<Value> {
    if !value.truth() {
        return Value::stream([]);
    }
    let mut out = Vec::new();
    let take = |args: &mut Args, name: &str| {
        let at = args.named.iter().position(|(other, _)| **other == *name);
        at.map(|at| args.named.remove(at).1)
    };
    let attribute = if args.positional.is_empty() {
        take(&mut args, "attribute")
    } else {
        None
    };
    if let Some(attribute) = attribute {
        let default = take(&mut args, "default");
        args.none("map")?;
        let getter = Getter::of(Some(&attribute), default)?;
        for value in run.values(value)? {
            out.push(getter.get(run, &value)?);
        }
        return Value::stream(out);
    }
    if args.positional.is_empty() {
        return Err(Error::raised("map requires a filter argument"));
    }
    let name = filter_name(args.positional.remove(0))?;
    for value in run.values(value)? {
        let args = Args {
            positional: args.positional.clone(),
            named: args.named.clone(),
        };
        out.push(run.filter(&name, value, args)?);
    }
    Value::stream(out)
}

fn filter_name(value: Value) -> Result<Arc<str>> {
    match value {
        Value::Str(name) => Ok(name),
        _ => Err(Error::raised("expected the name of a filter or a test")),
    }
}

fn select(run: &mut Run, name: &str, value: &Value, mut args: Args) -> Result<Value> {
    if !value.truth() {
        return Value::stream([]);
    }
    let wanted = name.starts_with("select");
    let getter = if name.ends_with("attr") {
        if args.positional.is_empty() {
            return Err(Error::raised("Missing parameter for attribute name"));
        }
        Getter::of(Some(&args.positional.remove(0)), None)?
    } else {
        Getter::of(None, None)?
    };
    let test = if args.positional.is_empty() {
        None
    } else {
        Some(filter_name(args.positional.remove(0))?)
    };
    let mut kept = Vec::new();
    for value in run.values(value)? {
        let part = getter.get(run, &value)?;
        let taken = match &test {
            Some(test) => {
                let args = Args {
                    positional: args.positional.clone(),
                    named: args.named.clone(),
                };
                run.test(test, &part, args)?.truth()
            }
            None => part.truth(),
        };
        if taken == wanted {
            kept.push(value);
        }
    }
    Value::stream(kept)
}
