//! How the types of settings are read: from flags, from `config.toml` and from `--set`.

use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use highwater_memory::Bytes;
use highwater_models::config::in_words;
use highwater_models::preference::DpoLoss;
use highwater_models::{Decay, Order, TokenWidth};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Value;

use crate::config::{
    DiskConfig, Forbid, LossOn, Master, Moments, OptimizerKind, Policy, Precision,
    PreferenceMethod, Quantize, Schedule, Task,
};

/// What is wrong with a setting.
#[derive(Debug)]
pub enum Problem {
    /// There is none of the name.
    Unknown,
    /// It is said already, and otherwise.
    Twice,
    /// It cannot be that.
    Value(String),
}

/// A type of settings.
pub trait SettingValue: Clone + PartialEq + Send + Sync + 'static {
    /// Has a flag take it.
    fn arg(arg: Arg) -> Arg;

    /// Reads a value of a file.
    ///
    /// # Errors
    /// [`Problem::Value`] where it is none.
    fn read(value: Value) -> Result<Self, Problem>;

    /// What a flag says.
    fn parse(matches: &ArgMatches, id: &str) -> Option<Self> {
        matches.get_one::<Self>(id).cloned()
    }

    /// Whether it asks for nothing.
    fn is_off(&self) -> bool {
        false
    }
}

/// Types that are read as clap and serde read them, or as a function after the colon reads them from a file.
macro_rules! known {
    (@ $value:ident) => { value($value) };
    (@ $value:ident $read:ident) => { $read($value) };
    ($($type:ty $(: $read:ident)?),+) => {
        $(impl SettingValue for $type {
            fn arg(arg: Arg) -> Arg {
                arg.value_parser(value_parser!($type))
            }

            fn read(found: Value) -> Result<Self, Problem> {
                known!(@ found $($read)?)
            }
        })+
    };
}

known!(String, PathBuf, Bytes: size, DiskConfig: disk, OptimizerKind: method);
known!(
    Task,
    Quantize,
    LossOn,
    PreferenceMethod,
    Precision,
    Forbid,
    Policy,
    Schedule,
    Master,
    Moments
);

/// Types whose flags a function reads; files are read as serde does.
macro_rules! parsed {
    ($($type:ty: $parse:expr),+) => {
        $(impl SettingValue for $type {
            fn arg(arg: Arg) -> Arg {
                arg.value_parser($parse)
            }

            fn read(found: Value) -> Result<Self, Problem> {
                value(found)
            }
        })+
    };
}

parsed!(
    usize: whole_number::<Self>,
    u64: whole_number::<Self>,
    f64: number,
    // Types of other crates, by the names that serde knows.
    Order: by_name::<Self>(&["sequential", "shuffled"]),
    Decay: by_name::<Self>(&["matrices", "all"]),
    TokenWidth: by_name::<Self>(&["u16", "u32"]),
    DpoLoss: by_name::<Self>(&DpoLoss::ALL.map(DpoLoss::name))
);

fn number(text: &str) -> Result<f64, &'static str> {
    let found: f64 = text.parse().map_err(|_| "expected a number")?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    // 0 turns things off.
    if found == 0.0 && mantissa.contains(|c: char| matches!(c, '1'..='9')) {
        return Err("the number is too close to 0");
    }
    Ok(found)
}

fn whole_number<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, &'static str> {
    text.parse()
        .map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => "the number is too large",
            _ => "expected a whole number, 0 or more",
        })
}

/// Has clap read a type by its names, as serde does.
pub(crate) fn by_name<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    names: &[&'static str],
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(names.iter().copied());
    names.try_map(|name| Value::String(name).try_into::<T>())
}

impl SettingValue for bool {
    fn arg(arg: Arg) -> Arg {
        let arg = arg.action(ArgAction::Set).num_args(0);
        let arg = arg.default_missing_value("true");
        arg.value_parser(value_parser!(bool))
    }

    fn read(found: Value) -> Result<Self, Problem> {
        value(found)
    }

    fn is_off(&self) -> bool {
        !self
    }
}

/// Several: a flag each, and in a file an array, or a text with commas between.
impl<T: SettingValue> SettingValue for Vec<T> {
    fn arg(arg: Arg) -> Arg {
        T::arg(arg).action(ArgAction::Append)
    }

    fn read(found: Value) -> Result<Self, Problem> {
        let each = match found {
            Value::String(text) => {
                let each = text.split(',').map(str::trim).map(str::to_owned);
                each.map(Value::String).collect()
            }
            found => value::<Vec<Value>>(found)?,
        };
        each.into_iter().map(T::read).collect()
    }

    fn parse(matches: &ArgMatches, id: &str) -> Option<Self> {
        Some(matches.get_many::<T>(id)?.cloned().collect())
    }

    fn is_off(&self) -> bool {
        self.is_empty()
    }
}

/// A name and what it is called elsewhere.
impl SettingValue for (String, String) {
    fn arg(arg: Arg) -> Arg {
        arg.value_parser(field_name)
    }

    fn read(found: Value) -> Result<Self, Problem> {
        field_name(&value::<String>(found)?).map_err(Problem::Value)
    }
}

fn field_name(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let parts = parts.filter(|(name, field)| !name.is_empty() && !field.is_empty());
    let (name, field) = parts.ok_or("expected NAME=FIELD, such as text=body")?;
    Ok((name.to_owned(), field.to_owned()))
}

/// Sets what is not set, or set so.
pub(crate) fn named<T: PartialEq>(flag: &mut Option<T>, value: T) -> Result<(), Problem> {
    match flag {
        Some(named) if *named != value => Err(Problem::Twice),
        _ => {
            *flag = Some(value);
            Ok(())
        }
    }
}

/// Sets what is not set, or set so, by what a file says.
pub(crate) fn plain<T: SettingValue>(flag: &mut Option<T>, found: Value) -> Result<(), Problem> {
    named(flag, T::read(found)?)
}

/// Reads a value of a file as serde does.
pub(crate) fn value<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    let found = value.try_into();
    found.map_err(|error: toml::de::Error| Problem::Value(in_words(error.message())))
}

/// A number of bytes, or a text such as 2GiB.
fn size(found: Value) -> Result<Bytes, Problem> {
    match found {
        Value::String(text) => {
            let found = text.parse::<Bytes>();
            found.map_err(|error| Problem::Value(error.to_string()))
        }
        found => value(found),
    }
}

fn disk(found: Value) -> Result<DiskConfig, Problem> {
    /// As `config.toml` has it, with a size of either form.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Disk {
        folder: PathBuf,
        bytes: Value,
    }
    if let Value::String(text) = &found {
        return text.parse().map_err(Problem::Value);
    }
    let Disk { folder, bytes } = value(found)?;
    let folder = std::path::absolute(folder);
    Ok(DiskConfig {
        folder: folder.map_err(|error| Problem::Value(error.to_string()))?,
        bytes: size(bytes)?,
        rates: None,
    })
}

/// The optimizer of a name, or of a table with what it has.
fn method(found: Value) -> Result<OptimizerKind, Problem> {
    let name = match found {
        Value::String(name) => Some(name),
        Value::Table(table) if table.len() == 1 => table.into_iter().next().map(|(name, _)| name),
        _ => None,
    };
    match name.as_deref() {
        Some("adamw") => Ok(OptimizerKind::Adamw),
        Some("sgd") => Ok(OptimizerKind::Sgd),
        _ => Err(Problem::Value("expected `adamw` or `sgd`".to_owned())),
    }
}
