//! The operations: one folder each, declared once.
//!
//! A folder holds `mod.rs` (attributes, shapes, cost, effect, backward, samples), `reference.rs`
//! (the plain reference in `f64`) and `cpu.rs` (the fast kernel). [`OPS`] lists them; the laws in
//! `laws` hold for every row, those of other crates included.

mod adamw;
#[allow(dead_code, unused_imports, reason = "used by the operations to come")]
mod blocks;
mod cell;
mod clip;
mod copy;
mod cross_entropy;
mod embedding;
pub mod evaluate;
mod finite;
mod full;
mod gemm;
mod indices;
mod kernel;
pub mod laws;
mod linear;
mod linear_cross_entropy;
#[allow(dead_code, unused_imports, reason = "used by the operations to come")]
mod math;
mod matmul;
mod pool;
#[allow(dead_code, unused_imports, reason = "used by the operations to come")]
mod reference_math;
mod scale;
mod scaled_dot_product_attention;
mod scatter_views;
mod sgd;
#[allow(dead_code, reason = "used by the operations to come")]
mod simd;
mod strided;
mod table;

pub use adamw::AdamW;
pub use cell::{Accumulate, Assign};
pub use clip::{ClipCoefficient, GradNorm};
pub use copy::Copy;
pub use cross_entropy::{CrossEntropy, CrossEntropyBackward, Reduction};
pub use embedding::{Embedding, EmbeddingBackward};
pub use finite::Finite;
pub use full::Full;
pub use kernel::{Args, Device, Element, KernelError, KernelFn, Kernels, View, op_as};
pub use linear::{BiasBackward, Linear};
pub use linear_cross_entropy::{LinearCrossEntropy, default_chunk_rows};
pub use matmul::{MatMul, MatMulSumBatches};
pub use pool::{Disjoint, Pool};
pub use scale::Scale;
pub use scaled_dot_product_attention::{
    Packed, ScaledDotProductAttention, ScaledDotProductAttentionBackward,
};
pub use scatter_views::ScatterViews;
pub use sgd::Sgd;
pub use table::{Array, Entry, Fill, ReferenceFn, Reject, Sample};

/// Every operation of this crate, sorted by name.
pub const OPS: &[Entry] = &[
    cell::ACCUMULATE,
    adamw::ENTRY,
    cell::ASSIGN,
    linear::BIAS_BACKWARD,
    clip::CLIP_COEFFICIENT,
    copy::ENTRY,
    cross_entropy::ENTRY,
    cross_entropy::BACKWARD,
    embedding::ENTRY,
    embedding::BACKWARD,
    finite::ENTRY,
    full::ENTRY,
    clip::GRAD_NORM,
    linear::ENTRY,
    linear_cross_entropy::ENTRY,
    matmul::ENTRY,
    matmul::SUM_BATCHES,
    scale::ENTRY,
    scaled_dot_product_attention::ENTRY,
    scaled_dot_product_attention::ENTRY_BACKWARD,
    scatter_views::ENTRY,
    sgd::ENTRY,
];
