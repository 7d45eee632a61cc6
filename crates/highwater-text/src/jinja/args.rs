//! The arguments of calls, bound to parameters as Python binds them.

use std::sync::Arc;

use super::error::{Error, Result};
use super::value::Value;

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(Arc<str>, Value)>,
}

impl Args {
    /// The arguments for some parameters, of which the first `required` must be given. A parameter that begins with
    /// a slash is given by its place alone.
    pub(super) fn bind<const N: usize>(
        self,
        what: &str,
        parameters: [&str; N],
        required: usize,
    ) -> Result<[Option<Value>; N]> {
        let given = self.positional.len();
        if given > N {
            let problem = format!("{what}() takes at most {N} arguments ({given} given)");
            return Err(Error::raised(problem));
        }
        let mut values = [const { None }; N];
        for (place, value) in values.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            let at = parameters.iter().position(|parameter| **parameter == *name);
            let at = at.ok_or_else(|| {
                Error::raised(format!(
                    "{what}() got an unexpected keyword argument '{name}'"
                ))
            })?;
            if values[at].is_some() {
                let problem = format!("{what}() got multiple values for argument '{name}'");
                return Err(Error::raised(problem));
            }
            values[at] = Some(value);
        }
        match values[..required].iter().position(Option::is_none) {
            None => Ok(values),
            Some(at) => {
                let name = parameters[at].trim_start_matches('/');
                let problem = format!("{what}() missing required argument: '{name}'");
                Err(Error::raised(problem))
            }
        }
    }

    /// No arguments at all.
    pub(super) fn none(self, what: &str) -> Result<()> {
        self.bind::<0>(what, [], 0).map(drop)
    }
}

/// A whole number.
pub(super) fn int(value: &Value) -> Result<i128> {
    value.defined()?.as_int().ok_or_else(|| {
        let name = value.type_name();
        Error::raised(format!(
            "'{name}' object cannot be interpreted as an integer"
        ))
    })
}

/// A whole number, or what is meant where there is none.
pub(super) fn int_or(value: Option<&Value>, default: i128) -> Result<i128> {
    value.map_or(Ok(default), int)
}

/// A number of characters, items or the like, as far as an address of Python's goes.
pub(super) fn count(value: &Value) -> Result<i64> {
    i64::try_from(int(value)?)
        .map_err(|_| Error::raised("Python int too large to convert to C ssize_t"))
}

/// The same, of which a negative one is nothing.
pub(super) fn size(value: &Value) -> Result<usize> {
    Ok(usize::try_from(count(value)?).unwrap_or(0))
}

/// A text.
pub(super) fn text<'a>(value: &'a Value, what: &str) -> Result<&'a Arc<str>> {
    match value.defined()? {
        Value::Str(text) => Ok(text),
        Value::Markup(_) => Err(Error::unsupported(format!("{what} with escaped text"))),
        other => {
            let name = other.type_name();
            Err(Error::raised(format!("{what}: expected str, not {name}")))
        }
    }
}

/// Whether what was given is true; where nothing was, `default`.
pub(super) fn flag(value: Option<&Value>, default: bool) -> bool {
    value.map_or(default, Value::truth)
}
