//! Carrying out plans: kernels, and transfers beside them.

pub(crate) mod execute;
pub(crate) mod transfers;
