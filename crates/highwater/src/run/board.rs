//! The board: what of a plan has completed, for all lanes to look at.

use crate::Error;
use crate::store::io::Io;
use highwater_plan::{Lane, Plan, Tier, ValueId};
use std::collections::BTreeMap;
use std::sync::PoisonError;
#[cfg(not(all(loom, test)))]
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

// In the model of the protocol.
#[cfg(all(loom, test))]
use loom::sync::{Condvar, Mutex, MutexGuard};

/// What has completed.
#[derive(Debug)]
pub(crate) struct Board {
    /// By index in the list: the tier that an instruction moves to or from.
    tiers: Vec<Option<Tier>>,
    done: Mutex<Done>,
    changed: Condvar,
}

#[derive(Debug)]
struct Done {
    /// By index in the list.
    completed: Vec<bool>,
    /// Nothing is started any more.
    stopped: bool,
    error: Option<Error>,
    /// Cells that were rewritten in the arena, and are not home yet, with their offsets.
    rewritten: BTreeMap<ValueId, u64>,
    /// By tier.
    io: [Io; 2],
    /// The tier that something was moved to or from last.
    last: Option<Tier>,
}

/// A transfer of a value: its index in the list, and which way it goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub(super) index: u32,
    pub(super) value: ValueId,
    pub(super) tier: Tier,
    pub(super) fetch: bool,
}

/// What the lanes came to.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What was moved, and what it took, by tier.
    pub(crate) io: [Io; 2],
    /// The first transfer that failed.
    pub(crate) error: Option<Error>,
    /// By index in the list: what has completed.
    pub(crate) completed: Vec<bool>,
}

impl Board {
    pub(super) fn new(plan: &Plan) -> Self {
        Self::of(plan.instructions.iter().map(|i| tier(i.lane)).collect())
    }

    /// One for instructions that move to or from these tiers, if at all.
    fn of(tiers: Vec<Option<Tier>>) -> Self {
        Self {
            done: Mutex::new(Done {
                completed: vec![false; tiers.len()],
                stopped: false,
                error: None,
                rewritten: BTreeMap::new(),
                io: [Io::default(); 2],
                last: None,
            }),
            tiers,
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for instructions. Answers whether to go on, which is not so if the plan is stopped, and the
    /// tier that was waited for last.
    pub(super) fn wait(&self, waits: &[u32]) -> (bool, Option<Tier>) {
        let mut done = self.lock();
        let mut waited = None;
        loop {
            let open = waits.iter().find(|&&wait| !done.completed[wait as usize]);
            let Some(&open) = open.filter(|_| !done.stopped) else {
                return (!done.stopped, waited);
            };
            waited = self.tiers[open as usize];
            done = (self.changed.wait(done)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`Board::wait`], for kernels; notes how long that took. Answers whether to go on.
    pub(crate) fn wait_to_compute(&self, waits: &[u32]) -> bool {
        let started = Instant::now();
        let (goes_on, waited) = self.wait(waits);
        if let Some(tier) = waited {
            self.lock().io[tier as usize].wait_seconds += started.elapsed().as_secs_f64();
        }
        goes_on
    }

    /// An instruction of the compute lane has completed.
    pub(crate) fn computed(&self, index: usize) {
        self.lock().completed[index] = true;
        self.changed.notify_all();
    }

    /// Bytes of a cell in the arena are about to be written.
    pub(crate) fn rewrites(&self, value: ValueId, offset: u64) {
        self.lock().rewritten.insert(value, offset);
    }

    /// A transfer has completed.
    pub(super) fn moved(&self, moved: Moved, bytes: u64, seconds: f64) {
        let mut done = self.lock();
        done.completed[moved.index as usize] = true;
        done.last = Some(moved.tier);
        let io = &mut done.io[moved.tier as usize];
        if moved.fetch {
            io.bytes_read += bytes;
            io.read_seconds += seconds;
        } else {
            io.bytes_written += bytes;
            io.write_seconds += seconds;
            done.rewritten.remove(&moved.value);
        }
        drop(done);
        self.changed.notify_all();
    }

    /// The cells that were rewritten in the arena and are not home yet, with their offsets.
    pub(super) fn take_rewritten(&self) -> BTreeMap<ValueId, u64> {
        std::mem::take(&mut self.lock().rewritten)
    }

    /// Bytes of a cell were written home after all.
    pub(super) fn went_home(&self, tier: Tier, bytes: u64) {
        self.lock().io[tier as usize].bytes_written += bytes;
    }

    /// Nothing is started any more.
    pub(crate) fn stop(&self, error: Option<Error>) {
        let mut done = self.lock();
        done.stopped = true;
        if done.error.is_none() {
            done.error = error;
        }
        drop(done);
        self.changed.notify_all();
    }

    /// What all came to, when kernels were done at `computed`; `error` is what failed after that.
    pub(super) fn end(self, computed: Instant, error: Option<Error>) -> Ended {
        let done = self.done.into_inner();
        let done = done.unwrap_or_else(PoisonError::into_inner);
        let mut io = done.io;
        if let Some(tier) = done.last {
            io[tier as usize].wait_seconds += computed.elapsed().as_secs_f64();
        }
        Ended {
            io,
            error: done.error.or(error),
            completed: done.completed,
        }
    }
}

/// The tier that a lane moves to or from.
fn tier(lane: Lane) -> Option<Tier> {
    match lane {
        Lane::HostToDevice | Lane::DeviceToHost => Some(Tier::Host),
        Lane::Read | Lane::Write => Some(Tier::Disk),
        Lane::Compute | Lane::Communicate => None,
    }
}

#[cfg(all(loom, test))]
#[path = "board_tests.rs"]
mod model;
