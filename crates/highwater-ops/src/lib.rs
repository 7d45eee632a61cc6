//! The operations: one folder each, declared once.
//!
//! A folder holds `mod.rs` (attributes, shapes, cost, effect, backward, samples), `reference.rs`
//! (the plain reference in `f64`) and `cpu.rs` (the fast kernel). [`OPS`] lists them; the laws in
//! `laws` hold for every row, those of other crates included.

mod gemm;
mod kernel;
pub mod linear;
pub mod matmul;
mod pool;
mod rows;
mod table;

pub use kernel::{Args, Device, Element, KernelError, KernelFn, Kernels, View, op_as};
pub use linear::{BiasBackward, Linear};
pub use matmul::{MatMul, MatMulSumBatches};
pub use pool::{Disjoint, Pool};
pub use table::{Array, Entry, Fill, ReferenceFn, Reject, Sample};

/// Every operation of this crate, sorted by name.
pub const OPS: &[Entry] = &[
    linear::BIAS_BACKWARD,
    linear::ENTRY,
    matmul::ENTRY,
    matmul::SUM_BATCHES,
];
