//! The settings that a command has flags for.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use super::settings::Settings;
use super::table::{Setting, Table};

/// Which settings a command has flags for.
pub trait Subset: Clone + Default + PartialEq + Send + Sync + 'static {
    /// Whether what is not given has a default; otherwise it stays as it was.
    const HAS_DEFAULTS: bool = true;

    /// Whether the command has `--help-all`, so that `--help` need only show what is essential.
    const HAS_HELP_ALL: bool = true;

    /// Whether it has a flag for this one.
    fn has(setting: &Setting<Settings>) -> bool;

    /// Whether it has the flag only so that a command line of `train` is one of its own.
    fn ignores(_: &Setting<Settings>) -> bool {
        false
    }
}

/// All settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct All;

/// All settings, of which those count that decide about the computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Computation;

/// Those that `resume` may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes;

/// Those that say how examples are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format;

impl Subset for All {
    fn has(_: &Setting<Settings>) -> bool {
        true
    }
}

impl Subset for Computation {
    fn has(_: &Setting<Settings>) -> bool {
        true
    }

    fn ignores(setting: &Setting<Settings>) -> bool {
        // The tokenizer of samples takes memory.
        setting.is_in("output.") && setting.flag != "sample"
    }
}

impl Subset for Changes {
    const HAS_DEFAULTS: bool = false;

    fn has(setting: &Setting<Settings>) -> bool {
        setting.can_change
    }
}

impl Subset for Format {
    const HAS_HELP_ALL: bool = false;

    fn has(setting: &Setting<Settings>) -> bool {
        setting.is_in("data.records.")
    }
}

/// The flags of some settings, for clap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flags<S: Subset>(pub Settings, PhantomData<S>);

impl<S: Subset> Deref for Flags<S> {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.0
    }
}

impl<S: Subset> DerefMut for Flags<S> {
    fn deref_mut(&mut self) -> &mut Settings {
        &mut self.0
    }
}

impl<S: Subset> Args for Flags<S> {
    fn augment_args(command: Command) -> Command {
        Settings::add_flags(command, S::has, |setting| {
            let is_hidden = S::HAS_HELP_ALL && !setting.is_essential;
            let arg = setting.to_arg(S::HAS_DEFAULTS, is_hidden);
            arg.hide(S::ignores(setting))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Subset> FromArgMatches for Flags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(Settings::of_flags(matches, S::has), PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
