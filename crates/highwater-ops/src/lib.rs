//! The operations: one folder each, declared once.
//!
//! A folder holds `mod.rs` (attributes, shapes, cost, effect, backward, samples), `reference.rs`
//! (the plain reference in `f64`) and `cpu.rs` (the fast kernel). [`OPS`] lists them; the laws in
//! `laws` hold for every row, those of other crates included.

mod adamw;
mod binary;
#[allow(dead_code, reason = "used by the operations to come")]
mod blocks;
mod cell;
mod clip;
pub mod evaluate;
mod finite;
mod gelu;
mod kernel;
pub mod laws;
#[allow(dead_code, reason = "used by the operations to come")]
mod math;
mod pointwise;
mod pool;
mod reference_math;
mod scalar;
mod scaled_dot_product_attention;
mod scatter_views;
mod sgd;
mod simd;
mod strided;
mod sum;
mod table;
mod unary;

pub use adamw::AdamW;
pub use binary::{Add, Div, Mul, Sub};
pub use cell::{Accumulate, Assign};
pub use clip::{ClipCoefficient, GradNorm};
pub use finite::Finite;
pub use gelu::{Gelu, GeluApproximate};
pub use kernel::{Args, Device, Element, KernelError, KernelFn, Kernels, View, op_as};
pub use pool::{Disjoint, Pool};
pub use scalar::{AddScalar, MulScalar};
pub use scaled_dot_product_attention::{
    Packed, ScaledDotProductAttention, ScaledDotProductAttentionBackward,
};
pub use scatter_views::ScatterViews;
pub use sgd::Sgd;
pub use sum::{Mean, Sum, SumTo};
pub use table::{Array, Entry, Fill, ReferenceFn, Reject, Sample};
pub use unary::{Exp, Log, Neg, Relu, Sigmoid, Sqrt, Tanh};

/// Every operation of this crate, sorted by name.
pub const OPS: &[Entry] = &[
    cell::ACCUMULATE,
    adamw::ENTRY,
    binary::ADD,
    scalar::ADD_SCALAR,
    cell::ASSIGN,
    clip::CLIP_COEFFICIENT,
    binary::DIV,
    unary::EXP,
    finite::ENTRY,
    gelu::GELU,
    gelu::GELU_BACKWARD,
    clip::GRAD_NORM,
    unary::LOG,
    sum::MEAN,
    binary::MUL,
    scalar::MUL_SCALAR,
    unary::NEG,
    unary::RELU,
    unary::RELU_BACKWARD,
    scaled_dot_product_attention::ENTRY,
    scaled_dot_product_attention::ENTRY_BACKWARD,
    scatter_views::ENTRY,
    sgd::ENTRY,
    unary::SIGMOID,
    unary::SIGMOID_BACKWARD,
    unary::SQRT,
    unary::SQRT_BACKWARD,
    binary::SUB,
    sum::SUM,
    sum::SUM_TO,
    unary::TANH,
    unary::TANH_BACKWARD,
];
