//! Gradients, as far as graphs alone are concerned: how the backward pass is emitted.

mod sums;
pub(crate) mod walk;
