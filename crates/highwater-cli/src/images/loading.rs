//! How many images are loaded ahead of a run, and by how many threads.

/// Threads that load images.
pub(crate) const WORKERS: usize = 2;
/// Batches that are loaded ahead: those that are put together count twice.
pub(crate) const AHEAD: u64 = 4;

/// Bytes of a batch of so many images of a side.
pub(crate) fn batch_bytes(batch: usize, size: usize) -> u64 {
    (batch * 3 * size * size) as u64 * 4
}
