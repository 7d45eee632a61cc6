//! Values of settings, as files and `--set` have them.

use std::path::PathBuf;

use highwater_memory::Bytes;
use highwater_models::config::in_words;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Value;

use crate::args::TrainArgs;
use crate::config::{DiskConfig, ModelSource, OptimizerKind};

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

pub(crate) fn put<T: DeserializeOwned + PartialEq>(
    flag: &mut Option<T>,
    v: Value,
) -> Result<(), Problem> {
    named(flag, value(v)?)
}

pub(crate) fn value<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    let found = value.try_into();
    found.map_err(|error: toml::de::Error| Problem::Value(in_words(error.message())))
}

/// One, or several: in a text with commas between.
pub(crate) fn list<T: DeserializeOwned>(v: Value) -> Result<Vec<T>, Problem> {
    match v {
        Value::String(text) => {
            let each = text
                .split(',')
                .map(|part| Value::String(part.trim().to_owned()));
            value(Value::Array(each.collect()))
        }
        v => value(v),
    }
}

/// A text, or several.
pub(crate) fn texts(v: Value) -> Result<Vec<String>, Problem> {
    match v {
        Value::String(text) => Ok(vec![text]),
        v => value(v),
    }
}

/// A number of bytes, or a text such as 2GiB.
pub(crate) fn size(v: Value) -> Result<Bytes, Problem> {
    match v {
        Value::String(text) => {
            let found = text.parse::<Bytes>();
            found.map_err(|error| Problem::Value(error.to_string()))
        }
        v => value(v),
    }
}

pub(crate) fn disk(v: Value) -> Result<DiskConfig, Problem> {
    /// As `config.toml` has it, with a size of either form.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Disk {
        folder: PathBuf,
        bytes: Value,
    }
    if let Value::String(text) = &v {
        return text.parse().map_err(Problem::Value);
    }
    let Disk { folder, bytes } = value(v)?;
    Ok(DiskConfig {
        folder: absolute(&folder)?,
        bytes: size(bytes)?,
        rates: None,
    })
}

/// A model as `--model` or `--init-from` names it.
pub(crate) fn source(args: &mut TrainArgs, v: Value) -> Result<(), Problem> {
    let name = match v {
        Value::String(name) => name,
        v => match value(v)? {
            ModelSource::Preset(name) => name,
            ModelSource::Folder(path) => {
                let name = path.to_str().map(str::to_owned);
                name.ok_or_else(|| Problem::Value("its name is no UTF-8".to_owned()))?
            }
            ModelSource::Config(path) => return named(&mut args.run.init_from, path),
        },
    };
    named(&mut args.run.model, name)
}

/// The optimizer of a name, or of a table with what it has.
pub(crate) fn method(v: &Value) -> Result<OptimizerKind, Problem> {
    let name = match v {
        Value::Table(table) if table.len() == 1 => table.keys().next().map(String::as_str),
        v => v.as_str(),
    };
    match name {
        Some("adamw") => Ok(OptimizerKind::Adamw),
        Some("sgd") => Ok(OptimizerKind::Sgd),
        _ => Err(Problem::Value("expected `adamw` or `sgd`".to_owned())),
    }
}

pub(crate) fn adamw(args: &mut TrainArgs) -> Result<(), Problem> {
    named(&mut args.run.optimizer, OptimizerKind::Adamw)
}

pub(super) fn absolute(path: &std::path::Path) -> Result<PathBuf, Problem> {
    std::path::absolute(path).map_err(|error| Problem::Value(error.to_string()))
}

/// What is wrong with a setting.
#[derive(Debug)]
pub(crate) enum Problem {
    /// There is none of the name.
    Unknown,
    /// It is said already, and otherwise.
    Twice,
    /// It cannot be that.
    Value(String),
}
