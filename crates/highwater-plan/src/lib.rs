//! Planner and verifier: pure functions over bytes, costs and edges.

mod plan;
mod problem;

pub use plan::*;
pub use problem::*;
