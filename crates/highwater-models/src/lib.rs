//! Models for the Highwater training engine: causal language models, with configurations and weights as
//! Hugging Face keeps them, and classifiers of images as torchvision has them.

pub mod adapter;
pub mod causal;
pub mod config;
pub mod decoder;
pub mod generate;
pub mod gguf;
pub mod gpt2;
mod json;
mod loss;
pub mod module_file;
pub mod module_folder;
pub mod npy;
pub mod parameters;
pub mod preference;
pub mod rope;
pub mod vision;
pub mod weights;

pub use adapter::{Merge, MergeError, load_adapter, read_adapter, save_adapter};
pub use causal::{Architecture, CausalLm, Packed, preset, read_architecture};
pub use config::{Activation, ConfigError, DecoderConfig, Gpt2Config};
pub use decoder::Decoder;
pub use generate::cache::{Cached, CachedLayer, KeyValueShape};
pub use generate::{Continuation, Sampling, generate, window_length};
pub use gpt2::Gpt2;
pub use highwater_text::{
    BatchShape, Batches, Cursor, DataError, DataOptions, Order, TokenWidth, Tokenizer,
    TokenizerError, Tokens, data, guarded, tokenizer,
};
pub use module_file::{load, save};
pub use module_folder::{SHARD_BYTES, save_folder};
pub use npy::read_npy;
pub use parameters::{Decay, ParameterSpec};
pub use safetensors::Dtype;
pub use weights::{
    Layout, NotFinite, TensorSpec, WeightsError, WeightsFolder, WeightsReader, WeightsSink,
    WeightsWriter,
};
