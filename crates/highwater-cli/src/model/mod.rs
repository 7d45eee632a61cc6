//! Models: what they are built from, what they learn from at once, their loss, and their weights.

pub mod base;
mod batch;
mod blueprint;
pub(crate) mod classifier;
pub(crate) mod lora;
mod place;
mod preference;
mod task_model;
pub mod tensors;
pub(crate) mod trained;

pub use batch::Batch;
pub use blueprint::Blueprint;
pub use classifier::Classifier;
pub(crate) use place::Place;
pub use task_model::Model;
pub(crate) use trained::Trained;
