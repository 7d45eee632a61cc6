//! Jinja2's filters.

mod numbers;
mod sequences;
mod texts;

use super::args::Args;
use super::error::{Error, Result};
use super::json;
use super::run::Run;
use super::value::Value;

/// All of Jinja2's.
const NAMES: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

/// Whether Jinja2 has such a filter.
pub(super) fn exists(name: &str) -> bool {
    NAMES.contains(&name)
}

impl Run {
    /// `value | name(args)`.
    pub(super) fn filter(&mut self, name: &str, value: Value, args: Args) -> Result<Value> {
        self.spend(1)?;
        match name {
            "default" | "d" => {
                let [default, boolean] = args.bind(name, ["default_value", "boolean"], 0)?;
                let missing = matches!(value, Value::Undefined(_))
                    || (boolean.is_some_and(|it| it.truth()) && !value.truth());
                Ok(if missing {
                    default.unwrap_or_else(|| Value::str(""))
                } else {
                    value
                })
            }
            "tojson" => json::filter(self, &value, args).map(Value::str),
            "string" => {
                args.none(name)?;
                match value {
                    Value::Str(_) | Value::Markup(_) => Ok(value),
                    other => Ok(Value::Str(self.text(&other)?)),
                }
            }
            "attr" => {
                let [name] = args.bind(name, ["name"], 1)?;
                let name = name.unwrap_or(Value::None);
                self.attr(&value, super::args::text(&name, "attr")?)
            }
            "abs" | "int" | "float" | "round" | "filesizeformat" => {
                numbers::apply(self, name, &value, args)
            }
            "batch" | "count" | "dictsort" | "first" | "groupby" | "items" | "last" | "length"
            | "list" | "map" | "max" | "min" | "reject" | "rejectattr" | "reverse" | "select"
            | "selectattr" | "slice" | "sort" | "sum" | "unique" => {
                sequences::apply(self, name, &value, args)
            }
            "pprint" | "random" | "urlize" => Err(Error::unsupported(format!("the filter {name}"))),
            name if exists(name) => texts::apply(self, name, value, args),
            name => Err(Error::raised(format!("No filter named '{name}' found."))),
        }
    }

    /// An attribute that is no item.
    fn attr(&mut self, value: &Value, name: &str) -> Result<Value> {
        match value {
            Value::Undefined(_) => Err(Error::unsupported("attr of what is undefined")),
            // An item is no attribute.
            Value::Dict(dict) if dict.get_str(name).is_some() => {
                let empty = Value::Dict(super::value::Dict::default().into());
                self.attribute(&empty, name)
            }
            value => self.attribute(value, name),
        }
    }
}
