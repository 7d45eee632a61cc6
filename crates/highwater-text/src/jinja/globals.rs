//! What templates may call without making it.

use super::args::{self, Args};
use super::error::{Error, Result};
use super::run::Run;
use super::value::{Dict, Function, Range, Value};

/// The longest range, as the sandbox has it.
const RANGE_MAX: usize = 100_000;

/// A function by its name.
pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "range" => Function::Range,
        "dict" => Function::Dict,
        "namespace" => Function::Namespace,
        "cycler" => Function::Cycler,
        "joiner" => Function::Joiner,
        "lipsum" => Function::Lipsum,
        "raise_exception" => Function::RaiseException,
        "strftime_now" => Function::StrftimeNow,
        _ => return None,
    })
}

/// An error for a name that namespaces do not take.
pub(super) fn check_attribute(name: &str) -> Result<()> {
    if name.starts_with('_') {
        return Err(Error::raised(format!(
            "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '{name}'. \
             Please rename the attribute."
        )));
    }
    Ok(())
}

impl Run {
    pub(super) fn call_function(&mut self, function: Function, args: Args) -> Result<Value> {
        match function {
            Function::Range => Self::range(args),
            Function::Dict => Ok(Value::Dict(self.dict(args)?.into())),
            Function::Namespace => {
                let dict = self.dict(args)?;
                for name in dict.keys().filter_map(Value::as_str) {
                    check_attribute(name)?;
                }
                self.namespaces.push(dict);
                Ok(Value::Namespace(self.namespaces.len() - 1))
            }
            Function::Cycler => {
                if args.positional.is_empty() || !args.named.is_empty() {
                    return Err(Error::raised("at least one item has to be provided"));
                }
                self.cyclers.push((args.positional, 0));
                Ok(Value::Cycler(self.cyclers.len() - 1))
            }
            Function::Joiner => {
                let [separator] = args.bind("joiner", ["sep"], 0)?;
                self.joiners
                    .push((separator.unwrap_or_else(|| Value::str(", ")), false));
                Ok(Value::Joiner(self.joiners.len() - 1))
            }
            Function::RaiseException => {
                let [message] = args.bind("raise_exception", ["message"], 1)?;
                let message = self.text(&message.unwrap_or(Value::None))?;
                Err(Error::raised(&*message))
            }
            Function::StrftimeNow => {
                let [format] = args.bind("strftime_now", ["format"], 1)?;
                let format = format.unwrap_or(Value::None);
                super::clock::written(self.now, args::text(&format, "strftime_now")?)
                    .map(Value::str)
            }
            Function::Lipsum => Err(Error::unsupported(
                "lipsum, which writes what chance has it,",
            )),
        }
    }

    fn range(args: Args) -> Result<Value> {
        let [first, second, step] = args.bind("range", ["/start", "/stop", "/step"], 1)?;
        let far = |value: &Value| {
            let number = args::int(value)?;
            let small = i64::try_from(number).is_ok();
            small
                .then_some(number)
                .ok_or_else(|| Error::unsupported("a range of large numbers"))
        };
        let first = far(&first.unwrap_or(Value::None))?;
        let (start, stop) = match &second {
            Some(stop) => (first, far(stop)?),
            None => (0, first),
        };
        let step = step.as_ref().map_or(Ok(1), far)?;
        if step == 0 {
            return Err(Error::raised("range() arg 3 must not be zero"));
        }
        let range = Range { start, stop, step };
        if range.len() > RANGE_MAX {
            return Err(Error::raised(format!(
                "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({RANGE_MAX})."
            )));
        }
        Ok(Value::Range(range))
    }

    /// `dict(...)`.
    fn dict(&mut self, args: Args) -> Result<Dict> {
        let Args { positional, named } = args;
        let mut dict = match &positional[..] {
            [] => Dict::default(),
            [Value::Dict(other)] => Dict::new(other.items.iter().cloned())?,
            [pairs] => {
                let mut dict = Dict::default();
                for pair in self.values(pairs.defined()?)? {
                    let mut pair = self.values(&pair)?.into_iter();
                    match (pair.next(), pair.next(), pair.next()) {
                        (Some(key), Some(value), None) => dict.insert(key, value)?,
                        _ => return Err(Error::raised("a dictionary needs pairs")),
                    }
                }
                dict
            }
            _ => return Err(Error::raised("dict expected at most 1 argument")),
        };
        self.spend(dict.items.len() as u64)?;
        for (name, value) in named {
            dict.insert(Value::Str(name), value)?;
        }
        Ok(dict)
    }
}
