//! A spill file over memory, with faults at each call, as one call a transfer and as many requests.

mod lanes;
mod moves;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Mutex;

use proptest::prelude::*;

use super::{BLOCK, Damage, Disk, Extent, Spill, SpillError, Tag};

const TAG: Tag = Tag {
    cell: 7,
    version: 3,
};
const RUN: u64 = 42;

/// What happens at a call.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Error(ErrorKind),
    /// So many bytes are transferred at most.
    Short(usize),
}

/// A disk in memory that fails as it is told to, by the number of the call.
#[derive(Debug, Default)]
struct Scripted {
    bytes: Mutex<Vec<u8>>,
    calls: Mutex<usize>,
    faults: BTreeMap<usize, Fault>,
    /// At this call and all after it.
    for_good: Option<(usize, Fault)>,
}

impl Scripted {
    fn of(blocks: usize) -> Self {
        Self {
            bytes: Mutex::new(vec![0; blocks * BLOCK]),
            ..Self::default()
        }
    }

    /// How many bytes this call may transfer.
    fn limit(&self) -> io::Result<usize> {
        let mut calls = self.calls.lock().unwrap();
        let call = *calls;
        *calls += 1;
        let lasting = self.for_good.filter(|&(from, _)| call >= from);
        match self.faults.get(&call).copied().or(lasting.map(|(_, f)| f)) {
            Some(Fault::Error(kind)) => Err(kind.into()),
            Some(Fault::Short(bytes)) => Ok(bytes),
            None => Ok(usize::MAX),
        }
    }
}

impl Scripted {
    fn write<'a>(&self, offset: u64, parts: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut left = self.limit()?;
        let mut bytes = self.bytes.lock().unwrap();
        let mut at = offset as usize;
        for part in parts {
            let count = part.len().min(left).min(bytes.len() - at);
            bytes[at..at + count].copy_from_slice(&part[..count]);
            (at, left) = (at + count, left - count);
        }
        Ok(at - offset as usize)
    }

    fn read<'a>(
        &self,
        offset: u64,
        parts: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<usize> {
        let mut left = self.limit()?;
        let bytes = self.bytes.lock().unwrap();
        let mut at = (offset as usize).min(bytes.len());
        for part in parts {
            let count = part.len().min(left).min(bytes.len() - at);
            part[..count].copy_from_slice(&bytes[at..at + count]);
            (at, left) = (at + count, left - count);
        }
        Ok(at.saturating_sub(offset as usize))
    }
}

impl Disk for Scripted {
    fn write_at(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        _: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        self.write(offset, parts.iter().map(|part| &**part))
    }

    fn read_at(
        &self,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
        _: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        self.read(offset, parts.iter_mut().map(|part| &mut **part))
    }

    fn backend(&self) -> &'static str {
        "memory"
    }
}

fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Calls with `bytes` of memory that starts so far behind the start of a block.
fn with_memory<T>(bytes: usize, shift: usize, f: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut memory = vec![0; bytes + 2 * BLOCK];
    let start = memory.as_ptr().addr().next_multiple_of(BLOCK) - memory.as_ptr().addr() + shift;
    f(&mut memory[start..start + bytes])
}

fn extent(offset: u64, capacity: usize) -> Extent {
    Extent {
        offset,
        capacity: capacity as u64,
    }
}

fn write<D: Disk>(
    spill: &Spill<D>,
    at: Extent,
    bytes: usize,
    shift: usize,
) -> Result<(), SpillError> {
    with_memory(bytes, shift, |memory| {
        memory.copy_from_slice(&payload(bytes));
        spill.write(at, TAG, memory)
    })
}

fn read<D: Disk>(
    spill: &Spill<D>,
    at: Extent,
    bytes: usize,
    shift: usize,
) -> Result<(), SpillError> {
    with_memory(bytes, shift, |memory| {
        spill.read(at, TAG, memory)?;
        assert!(memory == payload(bytes), "read as something else");
        Ok(())
    })
}

fn damage(found: Result<(), SpillError>) -> Damage {
    match found {
        Err(SpillError::Damaged { damage, .. }) => damage,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(bytes in 0..80 * BLOCK, from in 0..2usize, to in 0..2usize) {
        let spill = Spill::new(Scripted::of(100), RUN);
        let at = extent(2 * BLOCK as u64, bytes);
        write(&spill, at, bytes, from * 64).unwrap();
        read(&spill, at, bytes, to * 64).unwrap();
    }
}

const HARD: [ErrorKind; 2] = [ErrorKind::StorageFull, ErrorKind::Other];
const PASSING: [ErrorKind; 2] = [ErrorKind::Interrupted, ErrorKind::WouldBlock];

/// Faults at one of the first calls, or from it on.
fn faults() -> impl Iterator<Item = (usize, Fault, bool)> {
    let errors = HARD.into_iter().chain(PASSING).map(Fault::Error);
    let faults: Vec<Fault> = errors
        .chain([0, 1, BLOCK, BLOCK + 1, 3 * BLOCK].map(Fault::Short))
        .collect();
    (0..8).flat_map(move |call| {
        let at_call = faults.clone().into_iter();
        at_call.flat_map(move |fault| [(call, fault, false), (call, fault, true)])
    })
}

fn scripted(blocks: usize, (call, fault, lasts): (usize, Fault, bool)) -> Scripted {
    let mut disk = Scripted::of(blocks);
    if lasts {
        disk.for_good = Some((call, fault));
    } else {
        disk.faults.insert(call, fault);
    }
    disk
}

/// Whether a transfer that meets it is to fail.
fn is_hard((_, fault, lasts): (usize, Fault, bool)) -> bool {
    match fault {
        Fault::Error(kind) => lasts || HARD.contains(&kind),
        Fault::Short(count) => lasts && count < BLOCK,
    }
}

#[test]
fn every_call_may_fail_and_nothing_wrong_is_read() {
    let bytes = 70 * BLOCK + 100;
    for (faulty, shift) in faults().flat_map(|f| [(f, 0), (f, 64)]) {
        let spill = Spill::new(scripted(100, faulty), RUN);
        let at = extent(0, bytes);
        let written = write(&spill, at, bytes, shift);
        let found = read(&spill, at, bytes, shift);
        let (call, fault, _) = faulty;
        let reached = *spill.disk().calls.lock().unwrap() > call;
        let done = written.is_ok() && found.is_ok();
        assert_eq!(done, !(reached && is_hard(faulty)), "{faulty:?}");
        let full = matches!(fault, Fault::Error(ErrorKind::StorageFull));
        for error in [written, found].into_iter().filter_map(Result::err) {
            let transfer = matches!(error, SpillError::Transfer { .. });
            assert!(!transfer || error.is_full() == full, "{error}");
        }
    }
}

#[test]
fn each_flipped_bit_is_found() {
    let bytes = 2 * BLOCK + 1000;
    let spill = Spill::new(Scripted::of(5), RUN);
    let at = extent(0, bytes);
    write(&spill, at, bytes, 0).unwrap();
    let mut bit = 1usize;
    for _ in 0..10_000 {
        bit = (bit * 48_271) % 0x7fff_ffff;
        let place = bit % (4 * BLOCK * 8);
        let flip = || spill.disk().bytes.lock().unwrap()[place / 8] ^= 1 << (place % 8);
        flip();
        let wanted = if place < BLOCK * 8 {
            Damage::Header
        } else {
            Damage::Payload
        };
        assert_eq!(damage(read(&spill, at, bytes, 0)), wanted, "bit {place}");
        flip();
    }
    read(&spill, at, bytes, 0).unwrap();
}

#[test]
fn extents_of_others_are_found() {
    let bytes = BLOCK + 5;
    let size = Extent::footprint(bytes as u64);
    let spill = Spill::new(Scripted::of(12), RUN);
    let (a, b) = (extent(0, bytes), extent(size, bytes));
    let other = Tag { cell: 8, ..TAG };
    write(&spill, a, bytes, 0).unwrap();
    spill.write(b, other, &payload(bytes)).unwrap();
    let mut memory = vec![0; bytes];
    let mut at = |extent, tag| damage(spill.read(extent, tag, &mut memory));
    assert_eq!(at(a, other), Damage::Cell(7));
    assert_eq!(at(b, TAG), Damage::Cell(8));
    let stale = Damage::Version {
        found: 3,
        wanted: 4,
    };
    assert_eq!(at(a, Tag { version: 4, ..TAG }), stale);
    assert_eq!(at(extent(2 * size, bytes), TAG), Damage::Header);
    let length = Damage::Length {
        found: bytes as u64,
        wanted: BLOCK as u64,
    };
    assert_eq!(damage(spill.read(a, TAG, &mut memory[..BLOCK])), length);
    let run = Spill::new(Scripted::of(12), RUN + 1);
    *run.disk().bytes.lock().unwrap() = spill.disk().bytes.lock().unwrap().clone();
    assert_eq!(damage(run.read(a, TAG, &mut memory)), Damage::Run);
    assert!(matches!(
        spill.write(extent(0, bytes - 1), TAG, &memory),
        Err(SpillError::Extent { cell: 7, .. })
    ));
}

#[test]
fn a_lost_end_is_no_payload() {
    let bytes = 3 * BLOCK;
    let spill = Spill::new(Scripted::of(4), RUN);
    for blocks in 0..4 {
        write(&spill, extent(0, bytes), bytes, 0).unwrap();
        spill.disk().bytes.lock().unwrap().truncate(blocks * BLOCK);
        let found = read(&spill, extent(0, bytes), bytes, 0);
        assert!(matches!(
            found,
            Err(SpillError::Transfer { verb: "read", .. })
        ));
        spill.disk().bytes.lock().unwrap().resize(4 * BLOCK, 0);
    }
}
