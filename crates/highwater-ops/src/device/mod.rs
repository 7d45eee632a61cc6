//! What runs kernels: memory as they see it, what they are, the registry that finds them, threads.

pub mod cpu;
mod kernel;
pub(crate) mod pool;
pub(crate) mod registry;
mod view;
mod warm_up;

pub use kernel::{Args, Kernel, KernelError, Pairs, Piece, op_as};
pub use pool::{Disjoint, Engaged, Pool, PoolError, Spawn};
pub use registry::{DTypes, Device, Kernels, Registered, Row};
pub use view::{Element, SharedWith, View};
pub use warm_up::{packing_bytes, warm_up};
