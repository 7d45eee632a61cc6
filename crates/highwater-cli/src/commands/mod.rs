//! The commands, a file each with the flags that only it has, and the command line that they make.

pub mod chat;
mod cli;
pub mod data_show;
mod dispatch;
pub mod doctor;
pub mod eval;
pub mod export;
pub mod generate;
pub mod init;
mod localize;
mod measure;
pub mod merge;
pub mod plan;
pub mod shell;
mod tokenize;
pub mod train;

pub use cli::{Cli, Command};
pub use dispatch::{misunderstood, run};
