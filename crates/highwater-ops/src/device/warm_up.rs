//! Touches what kernels keep beside their declared memory, so that it is there when the process is
//! measured.

use super::error::PoolError;
use super::pool::Pool;
use super::pool::buffers::Buffers;

/// Makes the buffers of matrix products: [`packing_bytes`] of them.
///
/// # Errors
/// [`PoolError::Buffers`] where there is no memory for them.
pub fn warm_up(pool: &Pool) -> Result<(), PoolError> {
    pool.buffers().make_all(pool.threads())
}

/// What [`warm_up`] takes for so many threads, in bytes: 3 MiB, and 1.2 MiB for each.
#[must_use]
pub fn packing_bytes(threads: usize) -> u64 {
    Buffers::all_bytes(threads)
}
