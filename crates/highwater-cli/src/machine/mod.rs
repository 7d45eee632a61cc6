//! This machine: what it does in a second and at most, measured once and kept in the user's cache.

pub(crate) mod cache;
mod disk;
mod limits;
mod measuring;
pub(crate) mod processor;
mod rates;

pub use cache::Origin;
pub use disk::{FoundDisk, disk_bandwidths, remember};
pub use limits::MachineLimits;
pub(crate) use measuring::Measured;
pub use rates::{Found, Machine, find, find_rates};
