//! The board in every order that lanes can take: `CONTRIBUTING.md` says how to run it.

#![expect(unsafe_code, reason = "bytes of an arena have no owner")]

use super::{Board, Moved};
use crate::Error;
use highwater_plan::{Tier, ValueId};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Bytes of the arena, of which loom sees who uses them without having waited for who used them before.
struct Bytes(UnsafeCell<u32>);

// SAFETY: what is tested is that waits order all uses; loom stops where they do not.
unsafe impl Sync for Bytes {}
// SAFETY: as above.
unsafe impl Send for Bytes {}

impl Bytes {
    fn set(&self, value: u32) {
        // SAFETY: as for `Sync`.
        self.0.with_mut(|bytes| unsafe { *bytes = value });
    }

    fn get(&self) -> u32 {
        // SAFETY: as for `Sync`.
        self.0.with(|bytes| unsafe { *bytes })
    }
}

/// The list, with what each instruction waits for:
///
/// ```text
///   0 compute: makes 10              1 write: 10 leaves (0)      2 compute: makes 20 there (1)
///   3 read: 10 comes elsewhere (0)   4 compute: reads both (2, 3)
/// ```
const TIERS: [Option<Tier>; 5] = [None, Some(Tier::Disk), None, Some(Tier::Disk), None];

fn moved(index: u32, fetch: bool) -> Moved {
    Moved {
        index,
        value: ValueId::new(index as usize),
        tier: Tier::Disk,
        fetch,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fails {
    Nobody,
    Write,
    Read,
    Compute,
}

/// Answers what compute read in the end, if it came so far.
fn run(fails: Fails) -> Option<u32> {
    let board = Arc::new(Board::of(TIERS.to_vec()));
    let here = Arc::new(Bytes(UnsafeCell::new(0)));
    let there = Arc::new(Bytes(UnsafeCell::new(0)));
    let lane = |index: u32, fetch: bool, fault: Fails, wanted: Arc<Bytes>| {
        let board = Arc::clone(&board);
        thread::spawn(move || {
            if !board.wait(&[0]).0 {
                return;
            }
            if fails == fault {
                return board.stop(Some(Error::Internal("the disk".into())));
            }
            if fetch {
                wanted.set(10);
            } else {
                assert_eq!(wanted.get(), 10);
            }
            board.moved(moved(index, fetch), 1, 0.0);
        })
    };
    let write = lane(1, false, Fails::Write, Arc::clone(&here));
    let read = lane(3, true, Fails::Read, Arc::clone(&there));
    let compute = || {
        here.set(10);
        if fails == Fails::Compute {
            board.stop(None);
            return None;
        }
        board.computed(0);
        if !board.wait(&[1]).0 {
            return None;
        }
        here.set(20);
        board.computed(2);
        if !board.wait(&[2, 3]).0 {
            return None;
        }
        board.computed(4);
        Some(here.get() + there.get())
    };
    let sum = compute();
    for lane in [write, read] {
        lane.join().unwrap();
    }
    sum
}

fn check(fails: Fails, expected: Option<u32>) {
    loom::model(move || {
        let sum = run(fails);
        assert!(sum == expected, "{sum:?}");
    });
}

#[test]
fn waits_order_all_that_lanes_touch() {
    check(Fails::Nobody, Some(30));
}

#[test]
fn a_transfer_that_fails_sends_all_home() {
    check(Fails::Write, None);
    check(Fails::Read, None);
}

#[test]
fn kernels_that_stop_send_the_lanes_home() {
    check(Fails::Compute, None);
}
