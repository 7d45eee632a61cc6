//! The thread pool that kernels run on.

#![expect(unsafe_code, reason = "threads write disjoint parts of one slice")]

pub(crate) mod buffers;
mod disjoint;
mod engaged;
mod sync;
mod team;

pub use disjoint::Disjoint;
pub use engaged::Engaged;

use super::error::PoolError;
use buffers::Buffers;
use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use team::Team;

/// What a thread has of stack, in bytes.
const STACK: usize = 2 << 20;

/// A pool of a stated number of threads. Work is split by shapes and attributes alone, never by
/// the number of threads, so results are the same bits with any.
///
/// A thread that is none of the pool's hands its work over and sleeps until it is done: it takes up nothing
/// else meanwhile, whatever other pool it belongs to, so that it may hold locks. One that finds the pool at
/// work for another thread does its work by itself. So nobody ever waits for a pool that waits for him.
#[derive(Debug)]
pub struct Pool {
    team: Arc<Team>,
    workers: Vec<JoinHandle<()>>,
    threads: usize,
    buffers: Buffers,
    /// Held by the thread that the pool works for.
    turn: Mutex<()>,
}

/// How a pool starts its threads.
pub type Spawn<'a> = &'a dyn Fn(Builder, Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;

thread_local! {
    /// The pool whose thread this is, by the address of its team, and its number there.
    static SELF: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

impl Pool {
    /// Starts `threads` threads (at least one), each with a stack of 2 MiB.
    ///
    /// # Errors
    /// [`PoolError::Thread`] if the system refuses one.
    pub fn new(threads: usize) -> Result<Self, PoolError> {
        Self::start(threads, &|thread, work| thread.spawn(work))
    }

    /// As [`Pool::new`], by a way to start threads that tests may script.
    ///
    /// # Errors
    /// As [`Pool::new`]; the threads that were started have ended then.
    pub fn start(threads: usize, spawn: Spawn<'_>) -> Result<Self, PoolError> {
        let threads = threads.max(1);
        let mut pool = Self {
            team: Arc::new(Team::default()),
            workers: Vec::new(),
            threads,
            buffers: Buffers::default(),
            turn: Mutex::new(()),
        };
        for number in 0..threads {
            let team = Arc::clone(&pool.team);
            let work = move || {
                SELF.set(Some((Arc::as_ptr(&team).addr(), number)));
                match number {
                    0 => team.lead(),
                    _ => team.help(number),
                }
            };
            let named = Builder::new().name(format!("highwater-{number}"));
            let started = spawn(named.stack_size(STACK), Box::new(work));
            let failed = |source| PoolError::Thread {
                number: number + 1,
                threads,
                source,
            };
            pool.workers.push(started.map_err(failed)?);
        }
        Ok(pool)
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Memory of matrix products.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The number of this thread in the pool, if it is one of its threads.
    fn number(&self) -> Option<usize> {
        let (team, number) = SELF.get()?;
        (team == Arc::as_ptr(&self.team).addr()).then_some(number)
    }

    /// Runs `f` on one of the pool's threads and waits for it; on this thread, if it is one of the pool's or
    /// the pool is at work for another. Calls from inside `f` to the other methods then cost no hand-over.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        let free = match self.number() {
            Some(_) => None,
            None => match self.turn.try_lock() {
                Ok(turn) => Some(turn),
                Err(std::sync::TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
                Err(std::sync::TryLockError::WouldBlock) => None,
            },
        };
        let Some(_turn) = free else {
            return f();
        };
        let (mut f, mut result) = (Some(f), None);
        let engaged = Engaged::is();
        self.team.call(&mut || {
            let _engaged = engaged.then(Engaged::enter);
            let f = f.take();
            result = f.map(|f| catch_unwind(AssertUnwindSafe(f)));
        });
        match result {
            Some(Ok(result)) => result,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("the lead answers when it has called the task"),
        }
    }

    /// Runs `f(0)`, .., `f(tasks - 1)`, in any order and at the same time, and waits for all. If one
    /// panics, so does this, when those that run have ended; others may not have run then.
    pub fn for_each(&self, tasks: usize, f: impl Fn(usize) + Send + Sync) {
        self.for_each_on_thread(tasks, |task, _| f(task));
    }

    /// Like [`Pool::for_each`], giving each call the index (below [`Pool::threads`]) of the thread
    /// it runs on, for scratch memory that threads do not share.
    pub fn for_each_on_thread(&self, tasks: usize, f: impl Fn(usize, usize) + Send + Sync) {
        self.share(tasks, &f);
    }

    fn share(&self, tasks: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        let on_this = |thread: usize| (0..tasks).for_each(|task| f(task, thread));
        match self.number() {
            // Only the lead forks: what is called inside a task stays on its thread.
            Some(0) if tasks > 1 && self.threads > 1 && !Fork::is_inside() => self.fork(tasks, f),
            Some(thread) => on_this(thread),
            None if tasks <= 1 || self.threads == 1 => on_this(0),
            None => self.run(|| match self.number() {
                Some(_) => self.share(tasks, f),
                None => on_this(0),
            }),
        }
    }

    /// Runs tasks on this thread, which is the lead, and on those that join it.
    fn fork(&self, tasks: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let panicked: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);
        let engaged = Engaged::is();
        let work = |thread: usize| {
            let _engaged = engaged.then(Engaged::enter);
            let _inside = Fork::enter();
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    return;
                }
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| f(task, thread))) {
                    next.fetch_max(tasks, Ordering::Relaxed);
                    let mut first = panicked.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(panic);
                }
            }
        };
        self.team.fork((tasks - 1).min(self.threads - 1), &work);
        let panicked = panicked
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    /// Cuts `data` into pieces of `len` (the last may be shorter) and runs `f(i, piece)` on each.
    pub fn for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        len: usize,
        f: impl Fn(usize, &mut [T]) + Send + Sync,
    ) {
        let len = len.max(1);
        let (all, data) = (data.len(), Disjoint::new(data));
        self.for_each(all.div_ceil(len), |i| {
            let start = i * len;
            // SAFETY: each number is told once, and pieces of different numbers lie apart.
            f(i, unsafe { data.part(start, len.min(all - start)) });
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.team.end();
        for worker in self.workers.drain(..) {
            // They do not panic, and there would be nothing to be done about it.
            let _ = worker.join();
        }
    }
}

/// That a thread is at a task of a fork.
struct Fork(bool);

impl Fork {
    fn enter() -> Self {
        Self(INSIDE.replace(true))
    }

    fn is_inside() -> bool {
        INSIDE.get()
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
mod tests;
