//! The operations, their kernels, and what runs these.
//!
//! `ops` has a folder for each operation: `mod.rs` (attributes, shapes, cost, effect, backward, samples, rows),
//! `reference.rs` (the plain reference in `f64`), `cpu.rs` (the fast kernel), `tensor.rs` (the
//! method of `Tensor`, which the crate `highwater` compiles) and what PyTorch computes for it
//! (`fixtures.py` makes `fixtures.safetensors`; `fixtures.rs`, where it has settings, is for the test
//! `fixtures`). [`OPS`] lists them; the laws in `laws` hold for every row, those of other crates
//! included. What kernels are made of is in `kernels`, what a row of the table is in `table`, and what runs
//! kernels in `device`.

#![cfg_attr(
    test,
    expect(dead_code, reason = "the table of unit tests is a short one")
)]

mod device;
mod kernels;
#[cfg(feature = "laws")]
pub mod laws;
mod ops;
mod table;

pub use device::{
    Args, DTypes, Device, Disjoint, Element, Engaged, Kernel, KernelError, Kernels, Pairs, Piece,
    Pool, PoolError, Registered, Row, SharedWith, Spawn, View, cpu, op_as, packing_bytes, warm_up,
};
pub use kernels::{
    Draws, Formats, Limits, Master, Moments, StateCell, numbers_to, philox, round_to,
};
#[cfg(feature = "laws")]
pub use laws::evaluate;
pub use ops::*;
pub use table::{Array, Entry, Fill, ReferenceFn, Reject, Sample};
