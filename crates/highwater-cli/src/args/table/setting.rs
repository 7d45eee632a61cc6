//! What is stated of a setting.

use std::fmt::{self, Display};

use clap::{Arg, ArgMatches};
use toml::Value;

use super::bounds::Bounds;
use super::value::{Problem, SettingValue, named};
use crate::config::{SettingsError, Task};

type Put<S> = Box<dyn Fn(&mut S, Value) -> Result<(), Problem> + Send + Sync>;
type Parse<S> = Box<dyn Fn(&mut S, &ArgMatches) + Send + Sync>;
type Fill<S> = Box<dyn Fn(&mut S, &S) + Send + Sync>;
type Check<S> = Box<dyn Fn(&S) -> Result<(), OutOfBounds> + Send + Sync>;
/// The value and what is expected, where the value is out of bounds.
type OutOfBounds = (String, String);

/// A setting of the struct `S`.
pub struct Setting<S> {
    /// Its flag, without the dashes in front.
    pub flag: &'static str,
    /// Where it stands in `config.toml`; empty for a flag that has no place of its own.
    pub path: &'static str,
    /// Another place that says the same.
    pub also: Option<&'static str>,
    /// What it may be, as a file says it.
    pub example: &'static str,
    /// The task that it is for; none for all of them.
    pub task: Option<Task>,
    /// Whether `--help` shows it. `--help-all` shows all.
    pub is_essential: bool,
    /// Whether `resume` has the flag.
    pub can_change: bool,
    help: &'static str,
    default: &'static str,
    arg: Arg,
    is_given: Box<dyn Fn(&S) -> bool + Send + Sync>,
    bounds: Check<S>,
    pub(super) put: Put<S>,
    pub(super) parse: Parse<S>,
    pub(super) fill: Fill<S>,
}

impl<S> fmt::Debug for Setting<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{} ({})", self.flag, self.path)
    }
}

impl<S> Setting<S> {
    /// What `--help` says of it, with its default.
    pub fn help(&self) -> String {
        let help = self.help.trim();
        match self.default {
            "" => help.to_owned(),
            default => format!("{help} [default: {default}]"),
        }
    }

    /// The first sentence of it.
    pub fn summary(&self) -> &'static str {
        let help = self.help.trim();
        help.split(". ").next().unwrap_or(help)
    }

    /// Its flag. Without a default, what is not given stays as it was.
    pub(in crate::args) fn to_arg(&self, has_default: bool, is_hidden: bool) -> Arg {
        let arg = self.arg.clone().help(self.summary());
        let arg = arg.long_help(if has_default {
            self.help()
        } else {
            self.help.trim().to_owned()
        });
        arg.hide_short_help(is_hidden).hide_long_help(is_hidden)
    }

    /// Whether it is given, and not as it would be otherwise.
    pub fn is_given(&self, settings: &S) -> bool {
        (self.is_given)(settings)
    }

    /// Whether it has this flag, or stands in this table of `config.toml`, whose name ends with a dot.
    pub(crate) fn is_in(&self, name: &str) -> bool {
        self.flag == name || name.ends_with('.') && self.path.starts_with(name)
    }

    /// Holds it to its bounds.
    pub(super) fn check(&'static self, settings: &S) -> Result<(), SettingsError> {
        (self.bounds)(settings).map_err(|(value, expected)| SettingsError::Range {
            setting: self.flag,
            place: None,
            value,
            expected,
        })
    }
}

/// What an entry of [`settings!`](super::settings) states of a setting, whose type is `T`.
pub struct Entry<S, T> {
    pub(in crate::args) setting: Setting<S>,
    get: fn(&S) -> Option<&T>,
}

impl<S, T> fmt::Debug for Entry<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.setting.fmt(f)
    }
}

impl<S: 'static, T: SettingValue> Entry<S, T> {
    pub(in crate::args) fn new(
        (field, heading, help): (&'static str, &'static str, &'static str),
        get: fn(&S) -> Option<&T>,
        get_mut: fn(&mut S) -> &mut Option<T>,
    ) -> Self {
        // Once for each setting.
        let flag: &str = field.replace('_', "-").leak();
        let arg = Arg::new(field).long(flag).help_heading(heading);
        let setting = Setting {
            flag,
            path: "",
            also: None,
            example: "",
            task: None,
            is_essential: false,
            can_change: false,
            help,
            default: "",
            arg: T::arg(arg),
            is_given: Box::new(move |settings| get(settings).is_some_and(|value| !value.is_off())),
            bounds: Box::new(|_| Ok(())),
            put: Box::new(move |settings, value| named(get_mut(settings), T::read(value)?)),
            parse: Box::new(move |settings, matches| *get_mut(settings) = T::parse(matches, field)),
            fill: Box::new(move |settings, from| {
                if get(settings).is_none() {
                    *get_mut(settings) = get(from).cloned();
                }
            }),
        };
        Self { setting, get }
    }

    fn with(mut self, state: impl FnOnce(&mut Setting<S>)) -> Self {
        state(&mut self.setting);
        self
    }

    /// Where it stands in `config.toml`.
    pub(in crate::args) fn at(self, path: &'static str) -> Self {
        self.with(|it| it.path = path)
    }

    /// Another place that says the same.
    pub(in crate::args) fn also_at(self, path: &'static str) -> Self {
        self.with(|it| it.also = Some(path))
    }

    /// What the flag's value is called in `--help`.
    pub(in crate::args) fn value(self, name: &'static str) -> Self {
        self.flag(|arg| arg.value_name(name))
    }

    /// Another name of the flag, which `--help` does not show.
    pub(in crate::args) fn alias(self, name: &'static str) -> Self {
        self.flag(|arg| arg.alias(name))
    }

    /// What else there is to say of the flag to clap.
    pub(in crate::args) fn flag(self, say: impl FnOnce(Arg) -> Arg) -> Self {
        self.with(|it| it.arg = say(std::mem::take(&mut it.arg)))
    }

    /// What `--help` says that it is where nothing is said. `settings/resolve/` has it so.
    pub(in crate::args) fn default(self, words: &'static str) -> Self {
        self.with(|it| it.default = words)
    }

    /// A value, as `config.toml` has it.
    pub(in crate::args) fn example(self, value: &'static str) -> Self {
        self.with(|it| it.example = value)
    }

    /// The only task that it is for.
    pub(in crate::args) fn task(self, task: Task) -> Self {
        self.with(|it| it.task = Some(task))
    }

    /// A value that asks for nothing, so that every task takes it.
    pub(in crate::args) fn off(self, off: T) -> Self {
        let get = self.get;
        self.with(|it| it.is_given = Box::new(move |of| get(of).is_some_and(|it| *it != off)))
    }

    /// That `--help` shows it.
    pub(in crate::args) fn essential(self) -> Self {
        self.with(|it| it.is_essential = true)
    }

    /// That `resume` may change it. `settings/resolve/resume.rs` does.
    pub(in crate::args) fn resume(self) -> Self {
        self.with(|it| it.can_change = true)
    }

    /// What the file's value does, where it does more than to become the setting.
    pub(in crate::args) fn put(self, put: fn(&mut S, Value) -> Result<(), Problem>) -> Self {
        self.with(|it| it.put = Box::new(put))
    }

    /// What it may be.
    pub(in crate::args) fn bounds(self, bounds: impl Into<Bounds<T>>) -> Self
    where
        T: Display,
    {
        let (get, Bounds { holds, expected }) = (self.get, bounds.into());
        let check = move |settings: &S| match get(settings) {
            Some(value) if !holds(value) => Err((value.to_string(), expected.clone())),
            _ => Ok(()),
        };
        self.with(|it| it.bounds = Box::new(check))
    }
}
