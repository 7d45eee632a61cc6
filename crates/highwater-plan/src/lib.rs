//! Planner and verifier: pure functions over bytes, costs and edges.
//!
//! A [`Problem`] says what a step computes; [`Family::build`] finds plans for it, and
//! [`Family::choose`] picks the fastest whose arena fits a budget; [`verify`] proves it, by other means.

mod abreast;
mod alive;
mod archive;
mod check;
mod crossing;
mod csr;
mod curve;
mod dice;
mod emit;
mod evict;
mod explain;
mod family;
mod floor;
mod holders;
mod ids;
mod lanes;
mod linear;
mod lower;
mod meeting;
mod moving;
mod order;
mod outcome;
mod pack;
mod places;
mod plan;
mod policy;
mod polish;
mod preferences;
mod problem;
mod program;
mod schedule;
mod search;
mod setting;
mod settings;
mod shake;
mod simulate;
mod skyline;
mod timeline;
mod tried;
mod verify;

pub use check::ProblemError;
pub use explain::{Choice, Decision, explain};
pub use family::Family;
pub use floor::{Floor, Refusal};
pub use holders::{Holders, holders, running};
pub use plan::*;
pub use policy::Policy;
pub use preferences::Families;
pub use problem::*;
pub use timeline::{Timeline, timeline};
pub use verify::{Proof, Violation, verify};
