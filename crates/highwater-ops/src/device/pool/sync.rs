//! What the protocol of the pool is made of: the standard library's, or, in its model, loom's.

#[cfg(not(all(loom, test)))]
pub(super) use std::{
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(all(loom, test))]
pub(super) use loom::{
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};
