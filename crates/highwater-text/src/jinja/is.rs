//! Jinja2's tests.

use super::args::Args;
use super::ast::{Comparison, Operator};
use super::error::{Error, Result};
use super::letters::has_case;
use super::run::Run;
use super::value::Value;

/// All of Jinja2's that a template can name.
const NAMES: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// Whether Jinja2 has such a test.
pub(super) fn exists(name: &str) -> bool {
    NAMES.contains(&name)
}

impl Run {
    /// `value is name(args)`.
    pub(super) fn test(&mut self, name: &str, value: &Value, args: Args) -> Result<Value> {
        self.spend(1)?;
        let comparison = match name {
            "==" | "eq" | "equalto" => Some(Comparison::Eq),
            "!=" | "ne" => Some(Comparison::Ne),
            "<" | "lt" | "lessthan" => Some(Comparison::Lt),
            "<=" | "le" => Some(Comparison::Le),
            ">" | "gt" | "greaterthan" => Some(Comparison::Gt),
            ">=" | "ge" => Some(Comparison::Ge),
            _ => None,
        };
        if let Some(comparison) = comparison {
            let [other] = args.bind(name, ["/b"], 1)?;
            let other = other.unwrap_or(Value::None);
            return self.holds(comparison, value, &other).map(Value::Bool);
        }
        let is = match name {
            "divisibleby" => {
                let [number] = args.bind(name, ["num"], 1)?;
                let rest = self.binary(Operator::Mod, value, &number.unwrap_or(Value::None))?;
                self.equal(&rest, &Value::Int(0))?
            }
            "sameas" => {
                let [other] = args.bind(name, ["other"], 1)?;
                self.is_same(value, &other.unwrap_or(Value::None))?
            }
            "in" => {
                let [hay] = args.bind(name, ["seq"], 1)?;
                self.contains(&hay.unwrap_or(Value::None), value)?
            }
            name if !exists(name) => {
                return Err(Error::raised(format!("No test named '{name}' found.")));
            }
            name => {
                args.none(name)?;
                self.plain_test(name, value)?
            }
        };
        Ok(Value::Bool(is))
    }

    fn is_same(&self, value: &Value, other: &Value) -> Result<bool> {
        let plain = |it: &Value| {
            matches!(
                it,
                Value::Int(_)
                    | Value::Float(_)
                    | Value::Str(_)
                    | Value::Markup(_)
                    | Value::Undefined(_)
            )
        };
        if plain(value) && plain(other) && self.equal(value, other)? {
            // Whether Python has one of them or two is an accident.
            let problem = format!("sameas of equal values of type {}", value.type_name());
            return Err(Error::unsupported(problem));
        }
        Ok(value.is_same_as(other))
    }

    fn plain_test(&mut self, name: &str, value: &Value) -> Result<bool> {
        Ok(match name {
            "odd" | "even" => {
                let rest = self.binary(Operator::Mod, value, &Value::Int(2))?;
                self.equal(&rest, &Value::Int(i128::from(name == "odd")))?
            }
            "defined" => !matches!(value, Value::Undefined(_)),
            "undefined" => matches!(value, Value::Undefined(_)),
            "filter" | "test" => {
                value.hashed()?;
                let known = if name == "test" {
                    exists
                } else {
                    super::filters::exists
                };
                value.as_str().is_some_and(|it| known(it))
            }
            "none" => matches!(value, Value::None),
            "boolean" => matches!(value, Value::Bool(_)),
            "false" => matches!(value, Value::Bool(false)),
            "true" => matches!(value, Value::Bool(true)),
            "integer" => matches!(value, Value::Int(_)),
            "float" => matches!(value, Value::Float(_)),
            "number" => value.number().is_some(),
            "string" => value.as_str().is_some(),
            "mapping" => matches!(value, Value::Dict(_)),
            "lower" | "upper" => has_case(&self.text(value)?, name == "upper"),
            "sequence" => matches!(
                value,
                Value::Undefined(_)
                    | Value::Str(_)
                    | Value::Markup(_)
                    | Value::List(_)
                    | Value::Tuple(_)
                    | Value::Group(_)
                    | Value::Dict(_)
                    | Value::Range(_)
            ),
            "iterable" => matches!(
                value,
                Value::Undefined(_)
                    | Value::Str(_)
                    | Value::Markup(_)
                    | Value::List(_)
                    | Value::Tuple(_)
                    | Value::Group(_)
                    | Value::Dict(_)
                    | Value::View(..)
                    | Value::Range(_)
                    | Value::Stream(_)
                    | Value::Loop(_)
            ),
            "callable" => matches!(
                value,
                Value::Undefined(_)
                    | Value::Joiner(_)
                    | Value::Loop(_)
                    | Value::Macro(_)
                    | Value::Function(_)
                    | Value::Method(_)
            ),
            _ => matches!(value, Value::Markup(_)),
        })
    }
}
