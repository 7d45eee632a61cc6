//! What a disk does in a second, through a store as a run uses it.

#![expect(unsafe_code, reason = "arenas give addresses, transfers take slices")]

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{BLOCK, Extent, SpillError, Store, Tag, open};
use crate::arena::{Arena, ArenaError};

/// Payload of the extents that are measured with, in bytes, where there is room for some of them.
const EXTENT: u64 = 32 << 20;
/// The most extents: what a disk itself keeps in memory should not hold them all, and they take no
/// more than 1 GiB.
const EXTENTS: u64 = 31;
/// How long each of four phases takes, in seconds: filling, writing, reading, both.
const PHASE: f64 = 0.7;
/// Clocks of processors may be as coarse, in seconds.
const LEAST_BUSY: f64 = 1e-6;

/// What the disk of a folder does through a store, in bytes of payload per second, headers written and
/// hashes verified.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidths {
    /// Reading alone.
    pub read: f64,
    /// Writing alone, over what was written before.
    pub write: f64,
    /// Reading, while another thread writes.
    pub read_while_writing: f64,
    /// Writing, while another thread reads.
    pub write_while_reading: f64,
    /// Seconds of one processor for each byte, either way.
    pub processor_seconds: f64,
}

/// Measures the disk of a folder, with at most `bytes_to_use` of it and never more than 1 GiB, for about
/// three seconds. The folder is left as it was.
///
/// It takes memory of two extents: a quarter of `bytes_to_use`, and at most 64 MiB.
///
/// # Errors
/// As [`open`] and [`Spill`](super::Spill) have them; [`SpillError::Memory`] without that memory.
pub fn measure(folder: &Path, bytes_to_use: u64) -> Result<Bandwidths, SpillError> {
    measure_for(folder, bytes_to_use, PHASE)
}

/// The same, in phases of so many seconds.
pub(super) fn measure_for(
    folder: &Path,
    bytes_to_use: u64,
    seconds: f64,
) -> Result<Bandwidths, SpillError> {
    let bytes = (bytes_to_use / 8).min(EXTENT) / BLOCK as u64 * BLOCK as u64;
    let bytes = bytes.max(BLOCK as u64);
    let footprint = Extent::footprint(bytes);
    let count = (bytes_to_use / footprint).clamp(2, EXTENTS);
    let disk = Measured {
        store: open(folder, count * footprint, 0)?,
        bytes,
        moved: AtomicU64::new(0),
    };
    let (mut source, mut target) = (Buffer::new(bytes)?, Buffer::new(bytes)?);
    fill(source.bytes());
    let (source, target) = (&*source.bytes(), target.bytes());
    // The first time, the file system notes for each block that it was written: runs write many times.
    let start = Instant::now();
    let mut filled = 0;
    while filled < 2 || (filled < count && start.elapsed().as_secs_f64() < seconds) {
        disk.write(filled, source)?;
        filled += 1;
    }
    let busy = processor_seconds();
    let write = disk.rate(0..filled, seconds, |cell| disk.write(cell, source))?;
    let read = disk.rate(0..filled, seconds, |cell| disk.read(cell, target))?;
    let half = filled / 2;
    let (read_while_writing, write_while_reading) = thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let write = |cell| disk.write(cell, source);
            disk.rate(half..filled, seconds, write)
        });
        let read = disk.rate(0..half, seconds, |cell| disk.read(cell, target));
        match writing.join() {
            Ok(written) => Ok((read?, written?)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    let busy = (processor_seconds() - busy).max(LEAST_BUSY);
    Ok(Bandwidths {
        read,
        write,
        read_while_writing,
        write_while_reading,
        processor_seconds: busy / disk.moved.into_inner() as f64,
    })
}

/// What the process has had of processors so far, in seconds.
fn processor_seconds() -> f64 {
    let taken = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    taken.tv_sec as f64 + taken.tv_nsec as f64 * 1e-9
}

/// A store of extents of one size.
struct Measured {
    store: Store,
    bytes: u64,
    /// Bytes that were transferred in phases that count.
    moved: AtomicU64,
}

impl Measured {
    fn place(&self, cell: u64) -> (Extent, Tag) {
        let (offset, capacity) = (cell * Extent::footprint(self.bytes), self.bytes);
        (Extent { offset, capacity }, Tag { cell, version: 0 })
    }

    fn write(&self, cell: u64, from: &[u8]) -> Result<(), SpillError> {
        let (extent, tag) = self.place(cell);
        self.store.write(extent, tag, from)
    }

    fn read(&self, cell: u64, to: &mut [u8]) -> Result<(), SpillError> {
        let (extent, tag) = self.place(cell);
        self.store.read(extent, tag, to)
    }

    /// Transfers these extents in turn for so long, and says how many bytes a second it were.
    fn rate(
        &self,
        cells: Range<u64>,
        seconds: f64,
        mut transfer: impl FnMut(u64) -> Result<(), SpillError>,
    ) -> Result<f64, SpillError> {
        let start = Instant::now();
        let (mut taken, mut bytes) = (0.0, 0);
        for cell in cells.cycle() {
            if taken >= seconds && bytes > 0 {
                break;
            }
            transfer(cell)?;
            bytes += self.bytes;
            taken = start.elapsed().as_secs_f64();
        }
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        Ok(bytes as f64 / taken)
    }
}

/// Memory as the engine has it: an arena, in huge pages where there are some.
struct Buffer(Arena);

impl Buffer {
    fn new(bytes: u64) -> Result<Self, SpillError> {
        let arena = || -> Result<Arena, ArenaError> {
            let arena = Arena::reserve(bytes)?;
            arena.set_height(bytes)?;
            Ok(arena)
        };
        let memory = |source| SpillError::Memory { bytes, source };
        arena().map(Self).map_err(memory)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: below the height, which stays, an arena is memory like any other, filled with zeros
        // at first; nobody else has this one.
        unsafe { std::slice::from_raw_parts_mut(self.0.base().as_ptr(), self.0.height() as usize) }
    }
}

/// Fills memory with what no disk can make shorter.
fn fill(memory: &mut [u8]) {
    let mut state = 1u64;
    for word in memory.chunks_exact_mut(8) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
}
