//! Carrying out plans: kernels, and transfers beside them.

mod areas;
mod board;
mod call;
pub(crate) mod execute;
pub(crate) mod machine;
mod queue;
pub(crate) mod transfers;
