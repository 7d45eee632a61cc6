//! What runs kernels: memory as they see it, what they are, the registry that finds them, threads.

pub mod cpu;
mod error;
mod kernel;
pub(crate) mod pool;
mod registry;
mod view;
mod warm_up;

pub use error::{KernelError, PoolError};
pub use kernel::{Args, Kernel, Pairs, Piece, op_as};
pub(crate) use kernel::{BLOCK, in_place};
pub use pool::{Disjoint, Engaged, Pool, Spawn};
pub use registry::{DTypes, Device, Kernels, Registered, Row};
pub use view::{Element, SharedWith, View};
pub use warm_up::{packing_bytes, warm_up};
