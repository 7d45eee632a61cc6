//! Many trials, on all processors.

use std::sync::{Mutex, PoisonError};

/// Calls `trial` with each of these, on all processors.
pub(crate) fn each<T: Send>(
    trials: impl IntoIterator<IntoIter: Iterator<Item = T> + Send>,
    trial: impl Fn(T) + Sync,
) {
    let left = Mutex::new(trials.into_iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(next) = next() {
                    trial(next);
                }
            });
        }
    });
}
