//! Modules: what holds parameters and has a forward.

mod adapter;
mod attention;
mod containers;
mod conv;
mod float_rows;
pub mod functional;
mod in_place_abn;
pub mod init;
mod layers;
mod lora;
mod module;
mod norm;
mod packed;
mod parametrizations;
mod pixel_shuffle;
mod pooling;
mod quantized;
mod recurrent;
mod transformer;
mod upsample;

pub use adapter::{Adaptable, LoraOptions, without_adapters};
pub use attention::{CausalSelfAttention, self_attention};
pub use containers::{Forward, Sequential};
pub use conv::{Conv, Conv1d, Conv2d, ConvTranspose, ConvTranspose1d, ConvTranspose2d};
pub use in_place_abn::{InPlaceAbn, InPlaceAbnOptions};
pub use layers::{Dropout, Embedding, LayerNorm, Linear, RmsNorm, TransposedLinear};
pub use lora::{add_adapters, is_transposed, merge_adapters, reset_magnitudes, targeted};
pub use module::{Mode, Module, StateValues, Visitor, join};
pub use norm::{BatchNorm, BatchNorm1d, BatchNorm2d, BatchNormOptions, GroupNorm, InstanceNorm2d};
pub use packed::PackedSequence;
pub use parametrizations::{SpectralNorm, SpectralNormOptions, WeightNorm};
pub use pixel_shuffle::{PixelShuffle, PixelUnshuffle};
pub use pooling::{AdaptiveAvgPool2d, AvgPool2d, MaxPool2d};
pub use quantized::QuantizedLinear;
pub use recurrent::{Gru, GruCell, Lstm, LstmCell, Nonlinearity, RecurrentOptions, Rnn, RnnCell};
pub use transformer::{
    Activation, MultiheadAttention, Sees, TransformerDecoderLayer, TransformerEncoderLayer,
    TransformerOptions,
};
pub use upsample::Upsample;

pub use highwater_derive::Module;
pub use highwater_ops::{
    ConvSettings, GridMode, GridPadding, Interpolation, Invertible, PadMode, PoolSettings,
    ScatterReduction,
};
