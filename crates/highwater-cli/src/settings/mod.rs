//! From flags, files of settings and defaults to the settings of a run.

pub(crate) mod epochs;
mod from_config;
pub(crate) mod inputs;
pub mod resolve;
mod validate;

#[cfg(test)]
mod table_tests;
