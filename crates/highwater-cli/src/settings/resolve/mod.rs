//! From flags to settings: defaults, and what depends on the model.

mod checks;
mod data;
mod defaults;
mod lora;
mod machine;
mod model;
mod moved;
mod optimizer;
mod output;
mod paths;
mod preference;
mod records;
mod resume;
mod run;
mod training;

pub use resume::resume;
pub use run::{Resolved, run, train};

#[cfg(test)]
mod tests;
