//! Activations with settings: `leaky_relu`, `elu`, `softplus`.
//!
//! Each takes one float tensor of any shape and layout, computes in `f32`, may work in place, and costs one
//! pass; its gradient is one pass as well, may overwrite the gradient of the output, and has gradients of its
//! own.

mod elu;
mod leaky_relu;
mod softplus;

pub use elu::Elu;
pub(crate) use elu::{EluBackward, EluInverse};
pub use leaky_relu::LeakyRelu;
pub(crate) use leaky_relu::LeakyReluBackward;
pub use softplus::Softplus;

use crate::Entry;

/// The rows of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    leaky_relu::FORWARD,
    leaky_relu::BACKWARD,
    elu::FORWARD,
    elu::BACKWARD,
    elu::INVERSE,
    softplus::FORWARD,
    softplus::BACKWARD,
];
