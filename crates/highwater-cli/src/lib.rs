//! The `highwater` program: trains models of text and of images inside a memory budget.

pub mod args;
pub mod commands;
pub mod config;
pub mod data;
pub mod error;
pub mod folder;
mod generate;
pub mod hub;
pub mod images;
pub mod machine;
pub mod model;
pub mod planning;
pub mod run;
pub mod session;
pub mod settings;
mod state_name;
pub mod terminal;
