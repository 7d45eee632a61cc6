//! Gradients, as far as graphs alone are concerned: how the backward pass is emitted.

pub(crate) mod function;
mod sums;
pub(crate) mod walk;
