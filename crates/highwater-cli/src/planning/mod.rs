//! What settings would take, found by planning them and running nothing; and what is said where they do not fit.

mod assumptions;
pub mod budget;
mod call;
mod fit;
mod floor;
mod phases;
mod planner;
pub mod refusal;

pub use assumptions::Assumptions;
pub(crate) use assumptions::{PLENTY, TOKENS};
pub(crate) use call::plan_call;
pub(crate) use fit::fitting;
pub use floor::NearFloor;
pub use phases::{Phase, Phases, plan_phases};
pub use planner::Planner;
