//! From the pending graph to the planner's problem, and what is remembered of its answers.

pub(crate) mod clock;
pub(crate) mod compile;
pub(crate) mod disk_clock;
pub(crate) mod fuse;
pub(crate) mod offsets;
mod pins;
pub(crate) mod plan_cache;
pub(crate) mod profile;
pub(crate) mod proven;
pub(crate) mod ran;
pub(crate) mod rates;
