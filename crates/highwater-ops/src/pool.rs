//! The thread pool that kernels run on.

#![expect(unsafe_code, reason = "threads write disjoint parts of one slice")]

use crate::gemm::Buffers;
use rayon::prelude::*;
use std::marker::PhantomData;

/// A pool of a stated number of threads. Work is split by shapes and attributes alone, never by
/// the number of threads, so results are the same bits with any.
#[derive(Debug)]
pub struct Pool {
    workers: rayon::ThreadPool,
    threads: usize,
    buffers: Buffers,
}

impl Pool {
    /// Starts `threads` threads (at least one), each with a stack of 2 MiB.
    ///
    /// # Errors
    /// If the system refuses the threads.
    pub fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let threads = threads.max(1);
        let workers = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .stack_size(2 << 20)
            .thread_name(|i| format!("highwater-{i}"))
            .build()?;
        let buffers = Buffers::default();
        Ok(Self {
            workers,
            threads,
            buffers,
        })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Memory of matrix products.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Runs `f` on one of the pool's threads and waits for it. Calls from inside `f` to the other
    /// methods then cost no hand-over.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.workers.install(f)
    }

    /// Runs `f(0)`, .., `f(tasks - 1)`, in any order and at the same time, and waits for all.
    pub fn for_each(&self, tasks: usize, f: impl Fn(usize) + Send + Sync) {
        if tasks <= 1 || self.threads == 1 {
            (0..tasks).for_each(f);
        } else {
            self.workers
                .install(|| (0..tasks).into_par_iter().with_max_len(1).for_each(f));
        }
    }

    /// Like [`Pool::for_each`], giving each call the index (below [`Pool::threads`]) of the thread
    /// it runs on, for scratch memory that threads do not share.
    pub fn for_each_on_thread(&self, tasks: usize, f: impl Fn(usize, usize) + Send + Sync) {
        self.for_each(tasks, |task| {
            // On a thread of another pool, or of none, tasks run one after the other.
            let thread = rayon::current_thread_index().filter(|&i| i < self.threads);
            f(task, thread.unwrap_or(0));
        });
    }

    /// Cuts `data` into pieces of `len` (the last may be shorter) and runs `f(i, piece)` on each.
    pub fn for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        len: usize,
        f: impl Fn(usize, &mut [T]) + Send + Sync,
    ) {
        let len = len.max(1);
        if data.len() <= len || self.threads == 1 {
            data.chunks_mut(len)
                .enumerate()
                .for_each(|(i, chunk)| f(i, chunk));
        } else {
            self.workers.install(|| {
                let chunks = data.par_chunks_mut(len).enumerate().with_max_len(1);
                chunks.for_each(|(i, chunk)| f(i, chunk));
            });
        }
    }
}

/// A slice that several tasks write at once, each its own part.
#[derive(Debug)]
pub struct Disjoint<'a, T> {
    data: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out by `part`, whose contract is that they do not overlap, and by
// `shared`, to several threads at once.
unsafe impl<T: Send + Sync> Send for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Shares a slice.
    pub fn new(data: &'a mut [T]) -> Self {
        Self {
            data: data.as_mut_ptr(),
            len: data.len(),
            memory: PhantomData,
        }
    }

    /// The part from `start` of `len` elements.
    ///
    /// # Panics
    /// If it ends behind the slice.
    ///
    /// # Safety
    /// No other part that is alive may overlap it.
    pub unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(
            start <= self.len && len <= self.len - start,
            "a part must end inside the slice"
        );
        // SAFETY: in bounds by the assertion, unaliased by the caller's contract.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }

    /// The part from `start` of `len` elements, to read.
    ///
    /// # Panics
    /// If it ends behind the slice.
    ///
    /// # Safety
    /// No part to write that is alive may overlap it.
    pub unsafe fn shared(&self, start: usize, len: usize) -> &'a [T] {
        assert!(
            start <= self.len && len <= self.len - start,
            "a part must end inside the slice"
        );
        // SAFETY: in bounds by the assertion, not written by the caller's contract.
        unsafe { std::slice::from_raw_parts(self.data.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_task_runs_once_on_a_thread_of_the_pool() {
        for threads in 1..=4 {
            let pool = Pool::new(threads).unwrap();
            let counts: Vec<_> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            pool.for_each_on_thread(100, |task, thread| {
                assert!(thread < threads);
                counts[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) == 1)
            );
            let mut data = vec![0; 103];
            pool.for_each_chunk(&mut data, 10, |i, chunk| chunk.fill(i));
            assert!(data.iter().enumerate().all(|(k, &i)| i == k / 10));
        }
    }
}
