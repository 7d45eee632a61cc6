//! Planner and verifier: pure functions over bytes, costs and edges.
//!
//! A [`Problem`] says what a step computes; [`Family::build`] finds plans for it, and
//! [`Family::choose`] picks the fastest whose arena fits a budget; [`verify`] proves it, by other means.

mod abreast;
mod archive;
mod check;
mod csr;
mod dice;
mod emit;
mod evict;
mod explain;
mod family;
mod holders;
mod lanes;
mod lower;
mod order;
mod pack;
mod plan;
mod polish;
mod preferences;
mod problem;
mod program;
mod schedule;
mod search;
mod settings;
mod shake;
mod simulate;
mod skyline;
mod timeline;
mod verify;

pub use check::{ALIGN, ProblemError, footprint, footprint_on};
pub use explain::{Choice, Decision, explain};
pub use family::{Family, Floor, Policy, Refusal};
pub use holders::{Holders, holders, running};
pub use plan::*;
pub use preferences::Families;
pub use problem::*;
pub use timeline::{Timeline, timeline};
pub use verify::{Proof, Violation, verify};
