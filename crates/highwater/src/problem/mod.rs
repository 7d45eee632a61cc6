//! From the pending graph to the planner's problem, and what is remembered of its answers.

pub(crate) mod clock;
pub(crate) mod compile;
pub(crate) mod compiled;
pub(crate) mod disk_clock;
pub(crate) mod fuse;
mod node;
mod numbers;
pub(crate) mod offsets;
mod pins;
pub(crate) mod plan_cache;
pub(crate) mod posed;
pub(crate) mod profile;
pub(crate) mod proven;
pub(crate) mod ran;
pub(crate) mod rates;
