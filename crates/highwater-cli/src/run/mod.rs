//! A run: its steps, its saved states, and what it says and writes meanwhile.

mod final_model;
mod log;
mod metrics;
mod pace;
mod profile;
mod progress;
pub(crate) mod provenance;
pub mod report;
mod samples;
pub mod saved_state;
pub(crate) mod start;
mod tensorboard;
mod training;

pub use log::Log;
pub use metrics::{Metrics, Record};
pub use samples::Samples;
pub use training::Run;
