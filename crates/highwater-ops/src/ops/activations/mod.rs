//! Activations with settings: `leaky_relu`, `elu`, `softplus`.
//!
//! Each takes one float tensor of any shape and layout, computes in `f32`, may work in place, and costs one
//! pass; its gradient is one pass as well, may overwrite the gradient of the output, and has gradients of its
//! own.
//!
//! Their loops are cut and held as `pointwise/kernels.rs` says; both sides of 0 are computed and one is
//! chosen, so that nothing branches. `elu` (by `expm1` in `f64`) runs at 31 to 39% of the pace of a copy,
//! `softplus` at 10 to 15% (with AVX2, BENCHMARKS.md).

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
