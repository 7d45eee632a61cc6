//! Models for the Highwater training engine: causal language models, with configurations and weights as
//! Hugging Face keeps them, and classifiers of images as torchvision has them.

mod files;
pub mod generate;
pub mod gguf;
mod json;
mod language;
pub mod preference;
pub mod vision;

pub use files::{adapter, module_file, module_folder, npy, weights};
pub use language::{causal, config, decoder, gpt2, parameters, rope};

pub use adapter::{Merge, MergeError, load_adapter, read_adapter, save_adapter};
pub use causal::{Architecture, CausalLm, Packed, preset, read_architecture};
pub use config::{Activation, ConfigError, DecoderConfig, Gpt2Config};
pub use decoder::Decoder;
pub use generate::{Continuation, Sampling, generate, window_length};
pub use gpt2::Gpt2;
pub use highwater_text::{
    BatchShape, Batches, Cursor, DataError, DataOptions, Order, TokenWidth, Tokenizer,
    TokenizerError, Tokens, data, guarded, tokenizer,
};
pub use language::cache::{Cached, CachedLayer, KeyValueShape};
pub use module_file::{load, save};
pub use module_folder::{SHARD_BYTES, save_folder};
pub use npy::read_npy;
pub use parameters::{Decay, ParameterSpec};
pub use safetensors::Dtype;
pub use weights::{
    Layout, NotFinite, TensorSpec, WeightsError, WeightsFolder, WeightsReader, WeightsSink,
    WeightsWriter,
};
