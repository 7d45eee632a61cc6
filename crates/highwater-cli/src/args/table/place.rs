//! Settings by where they stand in `config.toml`, as `--config` and `--set` name them.

use highwater_models::config::nearest;
use toml::Value;

use super::value::Problem;
use super::{Setting, Table};

/// A place in `config.toml` and the setting that stands there.
pub(crate) type Place<S> = (&'static str, &'static Setting<S>);

/// All places.
pub(crate) fn places<S: Table>() -> impl Iterator<Item = Place<S>> {
    S::table().iter().flat_map(|setting| {
        let path = Some(setting.path).filter(|path| !path.is_empty());
        path.into_iter()
            .chain(setting.also)
            .map(move |path| (path, setting))
    })
}

/// A setting that cannot be taken.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// Where it stands.
    pub(crate) path: String,
    /// What is wrong, for people.
    pub(crate) text: String,
    /// Whether it is said already, and otherwise.
    pub(crate) is_twice: bool,
}

/// Takes a setting, or all of a table of them. What is said already must be the same.
///
/// # Errors
/// [`Wrong`] for the first that is not possible.
pub(crate) fn take<S: Table>(settings: &mut S, path: &str, value: &Value) -> Result<(), Wrong> {
    let setting = places::<S>().find(|(place, _)| *place == path);
    let setting = setting.map(|(_, setting)| setting);
    let wrong = |problem| wrong(path, setting, problem);
    if let Some(setting) = setting {
        (setting.put)(settings, value.clone()).map_err(wrong)?;
    }
    let within = within::<S>(path);
    match value {
        Value::Table(table) if !within.is_empty() => {
            let mut each = table.iter();
            each.try_for_each(|(key, value)| take(settings, &format!("{path}.{key}"), value))
        }
        _ if setting.is_some() => Ok(()),
        _ if within.is_empty() => Err(wrong(Problem::Unknown)),
        _ => Err(wrong(Problem::Value(format!(
            "it has settings of its own: {}",
            within.join(", ")
        )))),
    }
}

fn wrong<S: Table>(path: &str, setting: Option<&Setting<S>>, problem: Problem) -> Wrong {
    let is_twice = matches!(problem, Problem::Twice);
    let text = match (problem, setting) {
        (Problem::Unknown, _) => unknown::<S>(path),
        (Problem::Twice, Some(Setting { flag, .. })) => match above::<S>(path) {
            Some(above) => format!("`{path}` contradicts --{above} or --{flag}"),
            None => format!("`{path}` is set twice: use --set or --{flag} once"),
        },
        (Problem::Twice, None) => format!("`{path}` is set twice"),
        (Problem::Value(why), setting) => {
            let example = setting.map_or("", |setting| setting.example);
            let such = match example {
                "" => String::new(),
                example => format!("; such as {example}"),
            };
            format!("`{path}`: {}{such}", why.trim_end())
        }
    };
    Wrong {
        path: path.to_owned(),
        text,
        is_twice,
    }
}

/// The flag of the setting that a path is a part of: optimizer.method of optimizer.method.sgd.momentum.
fn above<S: Table>(path: &str) -> Option<&'static str> {
    let setting = places::<S>().find(|(place, _)| is_part(path, place));
    setting.map(|(_, setting)| setting.flag)
}

/// Whether a path stands in a table: optimizer.method in optimizer.
fn is_part(path: &str, table: &str) -> bool {
    let rest = path.strip_prefix(table);
    rest.is_some_and(|rest| rest.starts_with('.'))
}

/// What stands in a table of settings.
pub(crate) fn within<S: Table>(path: &str) -> Vec<&'static str> {
    places::<S>()
        .map(|(place, _)| place)
        .filter(|place| is_part(place, path))
        .collect()
}

/// That there is no such setting, with the name that may have been meant.
fn unknown<S: Table>(path: &str) -> String {
    let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
    let paths: Vec<&str> = places::<S>().map(|(place, _)| place).collect();
    let last = |path: &&str| path.rsplit('.').next() == Some(name);
    let beside = |path: &&'static str| {
        let rest = match table {
            "" => Some(*path),
            table => path.strip_prefix(table)?.strip_prefix('.'),
        };
        rest?.split('.').next()
    };
    let beside: Vec<&str> = paths.iter().filter_map(beside).collect();
    let meant = if beside.is_empty() {
        nearest(path, &paths)
    } else {
        let elsewhere = || paths.iter().copied().find(last);
        nearest(name, &beside).or_else(elsewhere)
    };
    let found = match table {
        "" => format!("there is no setting `{name}`"),
        _ if beside.is_empty() => format!("there is no setting `{path}`"),
        table => format!("there is no setting `{name}` in `{table}`"),
    };
    match meant {
        Some(meant) => format!("{found}; did you mean `{meant}`?"),
        None => found,
    }
}
