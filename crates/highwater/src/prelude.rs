//! What nearly every program names: `use highwater::prelude::*;`.

pub use crate::nn::{Dropout, Embedding, LayerNorm, Linear, Module};
pub use crate::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions};
pub use crate::{Engine, Parameter, Result, Tensor, no_grad};
