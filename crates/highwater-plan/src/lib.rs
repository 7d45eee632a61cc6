//! Planner and verifier: pure functions over bytes, costs and edges.
//!
//! A [`Problem`] says what a step computes; [`Family::build`] finds plans for it, and
//! [`Family::choose`] picks the fastest whose arena fits a budget; [`verify`] proves it, by other means.

mod abreast;
mod csr;
mod dice;
mod emit;
mod explain;
mod family;
mod ids;
mod pack;
mod plan;
mod policy;
mod problem;
mod program;
mod search;
mod simulate;
mod verify;

pub use emit::{Timeline, timeline};
pub use explain::{Choice, Decision, Floor, Holders, Refusal, explain, holders, running};
pub use family::{Families, Family};
pub use plan::*;
pub use policy::Policy;
pub use problem::*;
pub use program::ProblemError;
pub use verify::{Proof, Violation, verify};
