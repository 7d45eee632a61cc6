//! How the threads of a pool get work: a *lead*, which carries out one call at a time for a thread that
//! is none of the pool's, and *helpers*, which join what the lead forks.
//!
//! Who calls sleeps until the lead has answered, and takes no other work meanwhile, so that it may hold
//! locks. A helper takes one of the seats of a fork; one that wakes up late finds none, and nobody waits
//! for it. What is handed over lives in the frame of who handed it: [`Team::call`] and [`Team::fork`] do
//! not return before nobody uses it.

#![expect(unsafe_code, reason = "threads take work from each other's frames")]

use super::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, yield_now};
use std::sync::PoisonError;

/// How often a thread that has run out of work looks for more before it sleeps. Kernels follow each
/// other within microseconds, and waking up takes longer.
const LOOKS: usize = if cfg!(loom) { 0 } else { 64 };

/// What the threads of a pool share.
#[derive(Debug, Default)]
pub(super) struct Team {
    state: Mutex<State>,
    /// The lead sleeps here.
    called: Condvar,
    /// Helpers sleep here.
    forked: Condvar,
    /// Who called sleeps here.
    answered: Condvar,
    /// The lead sleeps here until its helpers have left.
    left: Condvar,
    /// Counts forks, to see without the lock that there is another.
    forks: AtomicUsize,
    /// How many helpers are at work. Changes under the lock.
    helping: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    call: Option<Call>,
    is_answered: bool,
    fork: Option<Fork>,
    /// How many helpers may still join the fork.
    seats: usize,
    /// How many helpers sleep.
    asleep: usize,
    ended: bool,
}

/// What the lead is to do.
#[derive(Debug)]
struct Call(*mut (dyn FnMut() + Send));

// SAFETY: what it points to may be used on another thread, and is used by the lead alone until it has
// answered.
unsafe impl Send for Call {}

/// What helpers are to do, told who they are.
#[derive(Debug, Clone, Copy)]
struct Fork(*const (dyn Fn(usize) + Sync));

// SAFETY: what it points to may be used by several threads at once.
unsafe impl Send for Fork {}

impl Team {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the lead do something, and sleeps until it is done. For one caller at a time, which is no
    /// thread of the team; `task` does not unwind.
    pub(super) fn call(&self, task: &mut (dyn FnMut() + Send)) {
        // SAFETY: forgets how long the task lives. The lead does not use it once it has answered, and
        // this does not return before.
        let task: &'static mut (dyn FnMut() + Send) = unsafe { std::mem::transmute(task) };
        let mut state = self.lock();
        state.call = Some(Call(task));
        self.called.notify_one();
        while !state.is_answered {
            state = sleep(&self.answered, state);
        }
        state.is_answered = false;
    }

    /// Carries out calls until the team ends.
    pub(super) fn lead(&self) {
        let mut state = self.lock();
        loop {
            if let Some(Call(task)) = state.call.take() {
                drop(state);
                // SAFETY: the caller waits for the answer, and leaves the task alone until then.
                unsafe { (*task)() };
                state = self.lock();
                state.is_answered = true;
                self.answered.notify_one();
            } else if state.ended {
                return;
            } else {
                state = sleep(&self.called, state);
            }
        }
    }

    /// Does some work on this thread, which is the lead, and on up to so many helpers at the same time;
    /// answers when nobody is at it any more. `work` does not unwind.
    pub(super) fn fork(&self, helpers: usize, work: &(dyn Fn(usize) + Sync)) {
        // SAFETY: forgets how long the work lives. Helpers take it while they find a seat; below there
        // are no seats left, and this returns when all helpers have left.
        let shared: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let mut state = self.lock();
        (state.fork, state.seats) = (Some(Fork(shared)), helpers);
        let asleep = state.asleep;
        self.forks.fetch_add(1, Ordering::Release);
        drop(state);
        for _ in 0..helpers.min(asleep) {
            self.forked.notify_one();
        }
        work(0);
        let mut state = self.lock();
        (state.fork, state.seats) = (None, 0);
        if self.helping.load(Ordering::Relaxed) > 0 && LOOKS > 0 {
            drop(state);
            look(|| self.helping.load(Ordering::Relaxed) == 0);
            state = self.lock();
        }
        while self.helping.load(Ordering::Relaxed) > 0 {
            state = sleep(&self.left, state);
        }
    }

    /// Joins forks until the team ends, as the helper of this number, which is above 0.
    pub(super) fn help(&self, number: usize) {
        let mut state = self.lock();
        loop {
            if let Some(Fork(work)) = state.fork.filter(|_| state.seats > 0) {
                state.seats -= 1;
                self.helping.fetch_add(1, Ordering::Relaxed);
                drop(state);
                // SAFETY: who forked does not return before this helper has left, which is below.
                unsafe { (*work)(number) };
                state = self.lock();
                if self.helping.fetch_sub(1, Ordering::Relaxed) == 1 {
                    self.left.notify_one();
                }
            } else if state.ended {
                return;
            } else {
                state = self.idle(state);
            }
        }
    }

    /// Waits until there may be another fork, or the end.
    fn idle<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let known = self.forks.load(Ordering::Relaxed);
        drop(state);
        look(|| self.forks.load(Ordering::Acquire) != known);
        let mut state = self.lock();
        if state.seats == 0 && !state.ended {
            state.asleep += 1;
            state = sleep(&self.forked, state);
            state.asleep -= 1;
        }
        state
    }

    /// Sends everybody home who finds nothing left to do.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.forks.fetch_add(1, Ordering::Release);
        self.called.notify_all();
        self.forked.notify_all();
    }
}

fn sleep<'a>(on: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    on.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Looks a few times whether something has come, leaving the processor to others in between.
fn look(come: impl Fn() -> bool) {
    for _ in 0..LOOKS {
        if come() {
            return;
        }
        yield_now();
    }
}

#[cfg(all(loom, test))]
#[path = "model.rs"]
mod model;
