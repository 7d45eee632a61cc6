//! Settings that are stated once each. [`settings!`] makes of every entry its flag, its place in `config.toml`, its
//! bounds, and whatever else depends on it.

mod bounds;
mod place;
mod setting;
mod value;

pub use bounds::{Bounds, above, where_true};
#[cfg(test)]
pub(crate) use place::within;
pub(crate) use place::{Place, places, take};
pub use setting::{Entry, Setting};
pub(crate) use value::{Problem, by_name, named, plain, value};

use clap::{Arg, ArgMatches, Command};

use crate::config::SettingsError;

/// A struct that [`settings!`] makes: a field for each setting, which is `None` where nothing is said of it.
pub trait Table: Clone + Default + 'static {
    /// What is stated of each setting.
    fn table() -> &'static [Setting<Self>];

    /// Adds the flags of the settings that `has` picks, as `to_arg` makes them.
    fn add_flags(
        command: Command,
        has: impl Fn(&Setting<Self>) -> bool,
        to_arg: impl Fn(&Setting<Self>) -> Arg,
    ) -> Command {
        let picked = Self::table().iter().filter(|setting| has(setting));
        command.args(picked.map(to_arg))
    }

    /// What the flags of the settings that `has` picks say.
    fn of_flags(matches: &ArgMatches, has: impl Fn(&Setting<Self>) -> bool) -> Self {
        let mut settings = Self::default();
        for setting in Self::table().iter().filter(|setting| has(setting)) {
            (setting.parse)(&mut settings, matches);
        }
        settings
    }

    /// Takes from others whatever is not said here, but for what `stays` picks.
    fn fill(&mut self, from: &Self, stays: impl Fn(&Setting<Self>) -> bool) {
        for setting in Self::table().iter().filter(|setting| !stays(setting)) {
            (setting.fill)(self, from);
        }
    }

    /// Holds each setting to its bounds.
    ///
    /// # Errors
    /// [`SettingsError::Range`] for the first at fault.
    fn check(&self) -> Result<(), SettingsError> {
        let mut each = Self::table().iter();
        each.try_for_each(|setting| setting.check(self))
    }
}

/// Makes a struct of settings and its [`Table`]. A setting is an entry
///
/// ```text
/// /// What --help says of it
/// name: Type, at("place.in.config_toml"), value("N"), ...;
/// ```
///
/// under the heading that --help has it under. Its flag is its name with dashes. What follows the type are methods of
/// [`Entry`], in any order; `Type` implements `SettingValue`.
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident;
        $($heading:literal {
            $($(#[doc = $help:literal])+ $field:ident: $type:ty $(, $method:ident $(($($value:expr),+))?)*;)+
        })+
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $visible struct $name {
            $($($(#[doc = $help])+ $visible $field: Option<$type>,)+)+
        }

        impl $crate::args::table::Table for $name {
            fn table() -> &'static [$crate::args::table::Setting<Self>] {
                use $crate::args::table::{Entry, Setting};
                static TABLE: std::sync::LazyLock<Vec<Setting<$name>>> = std::sync::LazyLock::new(|| {
                    vec![$($(
                        Entry::<$name, $type>::new(
                            (stringify!($field), $heading, concat!($($help),+)),
                            |settings| settings.$field.as_ref(),
                            |settings| &mut settings.$field,
                        )
                        $(.$method($($($value),+)?))*
                        .setting,
                    )+)+]
                });
                &TABLE
            }
        }
    };
}
pub(crate) use settings;

#[cfg(test)]
mod tests;
