//! Modules: what holds parameters and has a forward.

mod attention;
mod layers;
mod module;
mod quantized;

pub use attention::{CausalSelfAttention, self_attention};
pub use layers::{Dropout, Embedding, LayerNorm, Linear, RmsNorm};
pub use module::{Mode, Module, Visitor, join};
pub use quantized::QuantizedLinear;

pub use highwater_derive::Module;
