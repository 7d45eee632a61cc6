//! The engine as its users see it: the budget law over sample models, reads in the middle of a step,
//! and what PyTorch's users expect of gradients, steps and errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod budget;
mod models;
mod reads;
mod semantics;
mod train;
mod views;
