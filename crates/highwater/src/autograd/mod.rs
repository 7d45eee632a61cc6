//! Gradients: how `backward()` grows the pending graph, and what becomes of what it computes.

pub(crate) mod backward;
pub(crate) mod checkpoint;
mod gradients;
pub(crate) mod walk;
