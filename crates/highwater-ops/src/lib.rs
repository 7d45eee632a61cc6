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
pub mod evaluate;
mod finite;
mod kernel;
pub mod laws;
#[allow(dead_code, unused_imports, reason = "used by the operations to come")]
mod math;
mod pool;
#[allow(dead_code, unused_imports, reason = "used by the operations to come")]
mod reference_math;
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
pub use finite::Finite;
pub use kernel::{Args, Device, Element, KernelError, KernelFn, Kernels, View, op_as};
pub use pool::{Disjoint, Pool};
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
    clip::CLIP_COEFFICIENT,
    finite::ENTRY,
    clip::GRAD_NORM,
    scaled_dot_product_attention::ENTRY,
    scaled_dot_product_attention::ENTRY_BACKWARD,
    scatter_views::ENTRY,
    sgd::ENTRY,
];
