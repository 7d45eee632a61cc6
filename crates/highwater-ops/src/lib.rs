//! The operations: one folder each, declared once.
//!
//! A folder holds `mod.rs` (attributes, shapes, cost, effect, backward, samples), `reference.rs`
//! (the plain reference in `f64`) and `cpu.rs` (the fast kernel). [`OPS`] lists them; the laws in
//! `laws` hold for every row, those of other crates included.

mod adamw;
mod binary;
mod blocks;
mod cast;
mod cat;
mod cell;
mod clip;
mod copy;
mod cross_entropy;
mod dropout;
mod embedding;
pub mod evaluate;
mod finite;
mod full;
mod gelu;
mod gemm;
mod indices;
mod kernel;
pub mod laws;
mod layer_norm;
mod linear;
mod linear_cross_entropy;
mod math;
mod matmul;
pub mod philox;
mod pointwise;
mod pool;
mod reference_math;
mod scalar;
mod scale;
mod scaled_dot_product_attention;
mod scatter_views;
mod sgd;
mod simd;
mod softmax;
mod strided;
mod sum;
mod table;
mod unary;
mod vector;
mod warm_up;

pub use adamw::AdamW;
pub use binary::{Add, Div, Mul, Sub};
pub use cast::Cast;
pub use cat::Cat;
pub use cell::{Accumulate, Assign};
pub use clip::{ClipCoefficient, GradNorm};
pub use copy::Copy;
pub use cross_entropy::{CrossEntropy, CrossEntropyBackward, Reduction};
pub use dropout::Dropout;
pub use embedding::{Embedding, EmbeddingBackward};
pub use finite::{Finite, Otherwise};
pub use full::Full;
pub use gelu::{Gelu, GeluApproximate};
pub use kernel::{Args, Device, Element, KernelError, KernelFn, Kernels, View, op_as};
pub use layer_norm::LayerNorm;
pub use linear::{BiasBackward, Linear};
pub use linear_cross_entropy::{LinearCrossEntropy, default_chunk_rows};
pub use matmul::{MatMul, MatMulSumBatches};
pub use pool::{Disjoint, Pool};
pub use scalar::{AddScalar, DivScalar, MulScalar, SubScalar};
pub use scale::Scale;
pub use scaled_dot_product_attention::{
    Packed, ScaledDotProductAttention, ScaledDotProductAttentionBackward,
};
pub use scatter_views::ScatterViews;
pub use sgd::Sgd;
pub use softmax::Softmax;
pub use sum::{Mean, Sum, SumTo};
pub use table::{Array, Entry, Fill, ReferenceFn, Reject, Sample};
pub use unary::{Exp, Log, Neg, Relu, Sigmoid, Sqrt, Tanh};
pub use warm_up::warm_up;

/// Every operation of this crate, sorted by name.
pub const OPS: &[Entry] = &[
    cell::ACCUMULATE,
    adamw::ENTRY,
    binary::ADD,
    scalar::ADD_SCALAR,
    cell::ASSIGN,
    linear::BIAS_BACKWARD,
    cast::ENTRY,
    cat::ENTRY,
    clip::CLIP_COEFFICIENT,
    copy::ENTRY,
    cross_entropy::ENTRY,
    cross_entropy::BACKWARD,
    binary::DIV,
    scalar::DIV_SCALAR,
    dropout::ENTRY,
    embedding::ENTRY,
    embedding::BACKWARD,
    unary::EXP,
    finite::ENTRY,
    full::ENTRY,
    gelu::GELU,
    gelu::GELU_BACKWARD,
    clip::GRAD_NORM,
    layer_norm::LAYER_NORM,
    layer_norm::LAYER_NORM_BACKWARD,
    linear::ENTRY,
    linear_cross_entropy::ENTRY,
    unary::LOG,
    matmul::ENTRY,
    matmul::SUM_BATCHES,
    sum::MEAN,
    binary::MUL,
    scalar::MUL_SCALAR,
    unary::NEG,
    unary::RELU,
    unary::RELU_BACKWARD,
    scale::ENTRY,
    scaled_dot_product_attention::ENTRY,
    scaled_dot_product_attention::ENTRY_BACKWARD,
    scatter_views::ENTRY,
    sgd::ENTRY,
    unary::SIGMOID,
    unary::SIGMOID_BACKWARD,
    softmax::SOFTMAX,
    softmax::SOFTMAX_BACKWARD,
    unary::SQRT,
    unary::SQRT_BACKWARD,
    binary::SUB,
    scalar::SUB_SCALAR,
    sum::SUM,
    sum::SUM_TO,
    unary::TANH,
    unary::TANH_BACKWARD,
];
