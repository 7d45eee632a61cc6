//! Packing and multiplying side by side, with as little waiting as may be.

use crate::Pool;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Stages, each of which packs something and then multiplies by it. While a stage multiplies, the
/// next one packs; what a stage packs lives until it has multiplied, so two buffers are enough. A product
/// of a stage goes on from the one of the same number of the stage before, and from no other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stages {
    pub(super) count: usize,
    /// Tasks of each stage that pack.
    pub(super) packs: usize,
    /// Tasks of each stage that multiply.
    pub(super) products: usize,
}

/// Products of a stage that are followed one by one: where there are more, waiting is short beside work.
const EACH: usize = 256;

/// What has been done. Tasks are numbered in an order in which each depends on earlier ones alone,
/// and are taken in that order by whoever is free: the first that is not done can always go on, so
/// that any number of threads gets through, one included.
#[derive(Debug)]
struct Progress {
    next: AtomicUsize,
    /// Tasks done in stages of even and of odd number.
    packs: [AtomicUsize; 2],
    products: [AtomicUsize; 2],
    /// Stages that products are done with, by their numbers; those that have no place here wait for all of
    /// the stage before.
    each: [AtomicU32; EACH],
    failed: AtomicBool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            next: AtomicUsize::new(0),
            packs: Default::default(),
            products: Default::default(),
            each: std::array::from_fn(|_| AtomicU32::new(0)),
            failed: AtomicBool::new(false),
        }
    }
}

impl Progress {
    /// Waits, unless a task failed.
    fn wait(&self, is_done: impl Fn() -> bool) -> bool {
        let mut rounds = 0_u32;
        while !is_done() {
            if self.failed.load(Ordering::Relaxed) {
                return false;
            }
            rounds += 1;
            if rounds < 1 << 12 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        true
    }
}

impl Stages {
    /// Runs `pack(stage, task)` and `multiply(stage, task)` for all stages and tasks.
    ///
    /// A stage multiplies when it has packed, each task when it has multiplied in the stage before; it packs
    /// when the last but one has multiplied.
    pub(super) fn run(
        &self,
        pool: Option<&Pool>,
        pack: impl Fn(usize, usize) + Sync,
        multiply: impl Fn(usize, usize) + Sync,
    ) {
        let progress = Progress::default();
        let work = |_| self.work(&progress, &pack, &multiply);
        match pool {
            Some(pool) => pool.for_each(pool.threads(), work),
            None => work(0),
        }
    }

    fn work(
        &self,
        progress: &Progress,
        pack: &impl Fn(usize, usize),
        multiply: &impl Fn(usize, usize),
    ) {
        // If a task panics, those who wait for it must not wait for ever.
        struct Failure<'a>(&'a AtomicBool);
        impl Drop for Failure<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
        }
        let _failure = Failure(&progress.failed);
        let Self {
            count,
            packs,
            products,
        } = *self;
        let wait = |done: &[AtomicUsize; 2], stage: usize, tasks: usize| {
            // All of this stage and of those before it that count with it.
            let enough = tasks * (stage / 2 + 1);
            progress.wait(|| done[stage % 2].load(Ordering::Acquire) >= enough)
        };
        loop {
            let task = progress.next.fetch_add(1, Ordering::Relaxed);
            // The first stage packs; then round after round, each stage multiplies after the next
            // one's packing was handed out.
            let (round, task) = match task.checked_sub(packs) {
                None => (0, task),
                Some(task) => (task / (packs + products) + 1, task % (packs + products)),
            };
            if task < packs {
                if round < count {
                    if round >= 2 && !wait(&progress.products, round - 2, products) {
                        return;
                    }
                    pack(round, task);
                    progress.packs[round % 2].fetch_add(1, Ordering::Release);
                }
                continue;
            }
            let stage = round - 1;
            if stage >= count {
                return;
            }
            let each = progress.each.get(task - packs);
            let goes_on = || match each {
                Some(each) => progress.wait(|| each.load(Ordering::Acquire) as usize >= stage),
                None => stage == 0 || wait(&progress.products, stage - 1, products),
            };
            if !wait(&progress.packs, stage, packs) || !goes_on() {
                return;
            }
            multiply(stage, task - packs);
            if let Some(each) = each {
                each.fetch_add(1, Ordering::Release);
            }
            progress.products[stage % 2].fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    #[test]
    fn tasks_run_once_and_after_what_they_depend_on() {
        // The second with more products than are followed one by one.
        for (count, packs, products) in [(23, 3, 5), (4, 2, EACH + 9)] {
            let stages = Stages {
                count,
                packs,
                products,
            };
            for threads in 1..=4 {
                let pool = Pool::new(threads).unwrap();
                let done = Mutex::new(Vec::new());
                let note = |kind, stage, task| done.lock().unwrap().push((kind, stage, task));
                let is_done = |what| done.lock().unwrap().contains(&what);
                let all = |kind, stage: usize| {
                    let done = done.lock().unwrap();
                    done.iter().filter(|d| (d.0, d.1) == (kind, stage)).count()
                };
                stages.run(
                    Some(&pool),
                    |stage, task| {
                        assert!(stage < 2 || all('m', stage - 2) == products);
                        note('p', stage, task);
                    },
                    |stage, task| {
                        assert!(all('p', stage) == packs);
                        assert!(stage == 0 || is_done(('m', stage - 1, task)));
                        note('m', stage, task);
                    },
                );
                let mut done = done.into_inner().unwrap();
                done.sort_unstable();
                done.dedup();
                assert_eq!(done.len(), count * (packs + products));
            }
        }
    }

    #[test]
    fn a_task_that_panics_keeps_nobody_waiting() {
        let stages = Stages {
            count: 9,
            packs: 2,
            products: 2,
        };
        for threads in 1..=3 {
            let pool = Pool::new(threads).unwrap();
            let run = || stages.run(Some(&pool), |stage, _| assert!(stage != 4), |_, _| ());
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        }
    }
}
