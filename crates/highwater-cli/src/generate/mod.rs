//! Sampling from a trained model, for `generate` and `chat`.

mod generation_config;
mod loaded;
mod sample_args;
mod stream;

pub(crate) use loaded::{Loaded, load};
pub(crate) use sample_args::SampleArgs;
pub(crate) use stream::{Speed, continue_text};
