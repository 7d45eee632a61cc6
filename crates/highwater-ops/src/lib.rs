//! The operations: one folder each, declared once.
//!
//! A folder holds `mod.rs` (attributes, shapes, cost, effect, backward, samples), `reference.rs`
//! (the plain reference in `f64`) and `cpu.rs` (the fast kernel). [`OPS`] lists them; the laws in
//! `laws` hold for every row, those of other crates included.

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "used by the operations to come"
)]
mod blocks;
mod kernel;
#[allow(dead_code, reason = "used by the operations to come")]
mod math;
mod pool;
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "used by the operations to come"
)]
mod reference_math;
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "used by the operations to come"
)]
mod simd;
mod table;

pub use kernel::{Args, Device, Element, KernelError, KernelFn, Kernels, View, op_as};
pub use pool::{Disjoint, Pool};
pub use table::{Array, Entry, Fill, ReferenceFn, Reject, Sample};

/// Every operation of this crate, sorted by name.
pub const OPS: &[Entry] = &[];
