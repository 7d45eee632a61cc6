//! Causal language models, with their configurations as Hugging Face has them.

pub(crate) mod cache;
pub mod causal;
pub mod config;
pub mod decoder;
pub mod gpt2;
mod loss;
pub mod parameters;
pub mod rope;
