//! What the program has to do with the terminal and the process that it runs in: output, progress, signals.

pub mod figures;
pub(crate) mod meter;
pub mod output;
pub mod signals;
