//! The same faults where a transfer is many requests that end in any order.

#![expect(unsafe_code, reason = "requests name memory that is lent to a lane")]

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::{Arc, Mutex};

use super::super::requests::{DEPTH, Landed, Lane, Lanes, REQUEST, Request, Way};
use super::super::{BLOCK, Disk, Spill, SpillError};
use super::{Fault, RUN, Scripted, TAG, extent, faults, is_hard, payload, read, scripted, write};

/// Carries requests out when it is waited for, the youngest first.
#[derive(Debug)]
struct Reversed {
    disk: Arc<Scripted>,
    waiting: Vec<Request>,
    most: Arc<Mutex<usize>>,
}

// SAFETY: tests use it from one thread.
unsafe impl Send for Reversed {}

impl Lane for Reversed {
    unsafe fn start(&mut self, request: &Request) -> io::Result<()> {
        self.waiting.push(*request);
        let mut most = self.most.lock().unwrap();
        *most = self.waiting.len().max(*most);
        Ok(())
    }

    fn land(&mut self, wait: bool) -> Option<Landed> {
        let request = if wait { self.waiting.pop() } else { None }?;
        // SAFETY: until it has landed, a request's parts are valid.
        let parts = unsafe { from_raw_parts(request.parts, request.count) }.iter();
        let result = match request.way {
            // SAFETY: and so is their memory.
            Way::Write => self.disk.write(
                request.offset,
                parts.map(|part| unsafe { from_raw_parts(part.start, part.bytes) }),
            ),
            // SAFETY: and so is their memory, which nobody else uses.
            Way::Read => self.disk.read(
                request.offset,
                parts.map(|part| unsafe { from_raw_parts_mut(part.start, part.bytes) }),
            ),
        };
        Some((request.number, result))
    }
}

fn lanes(disk: Scripted) -> (Arc<Scripted>, Spill<Lanes<Reversed>>) {
    let disk = Arc::new(disk);
    let most = Arc::new(Mutex::new(0));
    let lane = || {
        Mutex::new(Reversed {
            disk: disk.clone(),
            waiting: Vec::new(),
            most: most.clone(),
        })
    };
    let lanes = Lanes {
        write: lane(),
        read: lane(),
        backend: "memory, reversed",
    };
    (disk, Spill::new(lanes, RUN))
}

#[test]
fn many_requests_are_as_one() {
    for bytes in [0, 1, REQUEST - BLOCK, REQUEST, 20 * REQUEST + 5 * BLOCK + 9] {
        let (disk, spill) = lanes(Scripted::of(bytes / BLOCK + 10));
        for (offset, shift) in [(0, 0), (3 * BLOCK, 0), (0, 64)] {
            let at = extent(offset as u64, bytes);
            write(&spill, at, bytes, shift).unwrap();
            read(&spill, at, bytes, 64 - shift).unwrap();
            // The hash that was made on the way is that of the whole.
            let whole = std::mem::take(&mut *disk.bytes.lock().unwrap());
            let plain = Spill::new(Scripted::of(0), RUN);
            (*plain.disk().bytes.lock().unwrap()).clone_from(&whole);
            read(&plain, at, bytes, shift).unwrap();
            write(&plain, at, bytes, shift).unwrap();
            assert!(*plain.disk().bytes.lock().unwrap() == whole);
            *disk.bytes.lock().unwrap() = whole;
        }
        let most = *spill.disk().write.lock().unwrap().most.lock().unwrap();
        assert!(most <= DEPTH && (most == DEPTH || bytes < 16 * REQUEST));
    }
}

#[test]
fn every_request_may_fail_and_nothing_wrong_is_read() {
    let bytes = 4 * REQUEST + 100;
    for faulty in faults() {
        let (disk, spill) = lanes(scripted(bytes / BLOCK + 3, faulty));
        let at = extent(0, bytes);
        let written = write(&spill, at, bytes, 0);
        let found = read(&spill, at, bytes, 0);
        let (call, fault, lasts) = faulty;
        let done = written.is_ok() && found.is_ok();
        // What came before a failure is kept, and the rest is asked for again: that may do.
        let retried = matches!(fault, Fault::Error(_)) && !lasts;
        let reached = *disk.calls.lock().unwrap() > call;
        assert!(
            done != (reached && is_hard(faulty)) || retried,
            "{faulty:?}: {written:?}, {found:?}"
        );
        for error in [written, found].into_iter().filter_map(Result::err) {
            let transfer = matches!(error, SpillError::Transfer { .. });
            assert!(transfer || lasts || retried, "{faulty:?}: {error}");
        }
    }
}

#[test]
fn what_is_shown_has_come() {
    for (number, fault) in [
        (2, Fault::Short(BLOCK)),
        (3, Fault::Error(io::ErrorKind::Other)),
    ] {
        let bytes = 5 * REQUEST;
        // Requests are carried out from the last to the first.
        let (disk, spill) = lanes(scripted(bytes / BLOCK, (4 - number, fault, false)));
        disk.bytes.lock().unwrap().copy_from_slice(&payload(bytes));
        let mut memory = vec![0; bytes];
        let mut shown = Vec::new();
        let mut parts = [io::IoSliceMut::new(&mut memory)];
        let read = spill
            .disk()
            .read_at(0, &mut parts, &mut |bytes| shown.extend_from_slice(bytes));
        let read = read.unwrap();
        let more = if number == 2 { BLOCK } else { 0 };
        assert_eq!(read, number * REQUEST + more);
        assert!(shown.len() <= read && shown == payload(bytes)[..shown.len()]);
    }
}

#[test]
fn a_panic_leaves_nothing_under_way() {
    let bytes = 40 * REQUEST;
    let (_, spill) = lanes(Scripted::of(bytes / BLOCK + 1));
    let memory = payload(bytes);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let parts = [io::IoSlice::new(&memory)];
        spill.disk().write_at(0, &parts, &mut |_| panic!("seen"))
    }));
    assert!(panicked.is_err());
    spill.write(extent(0, bytes), TAG, &memory).unwrap();
    read(&spill, extent(0, bytes), bytes, 0).unwrap();
}
