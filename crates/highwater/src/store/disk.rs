//! The disk that cells and values wait on: its spill file, and who has which part of it.

use crate::store::tiers::{Below, TierUse};
use crate::{Error, Result};
use highwater_memory::Places;
use highwater_memory::spill::{self, BLOCK, Disk, Extent, Moved, Spill, SpillError, Store, Tag};
use highwater_plan::{Link, Tier};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a disk is taken to move, for predictions and choices between plans. Bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskRates {
    /// Reading alone.
    pub read: f64,
    /// Writing alone.
    pub write: f64,
    /// Reading while something is written.
    pub read_while_writing: f64,
    /// Writing while something is read.
    pub write_while_reading: f64,
    /// Seconds of one processor for each byte, either way: hashing, and what the system does.
    pub processor_seconds: f64,
}

impl From<spill::Bandwidths> for DiskRates {
    fn from(measured: spill::Bandwidths) -> Self {
        Self {
            read: measured.read,
            write: measured.write,
            read_while_writing: measured.read_while_writing,
            write_while_reading: measured.write_while_reading,
            processor_seconds: measured.processor_seconds,
        }
    }
}

impl From<DiskRates> for spill::Bandwidths {
    fn from(rates: DiskRates) -> Self {
        Self {
            read: rates.read,
            write: rates.write,
            read_while_writing: rates.read_while_writing,
            write_while_reading: rates.write_while_reading,
            processor_seconds: rates.processor_seconds,
        }
    }
}

impl DiskRates {
    /// Whether a disk may have them.
    pub(crate) fn are_sound(&self) -> bool {
        let rates = [
            self.read,
            self.write,
            self.read_while_writing,
            self.write_while_reading,
        ];
        let lost = self.processor_seconds;
        rates.iter().all(|rate| rate.is_finite() && *rate > 0.0) && lost.is_finite() && lost >= 0.0
    }
}

/// Those of no disk in particular, so that plans are the same on every machine.
impl Default for DiskRates {
    fn default() -> Self {
        Self {
            read: 2.0e9,
            write: 1.0e9,
            read_while_writing: 1.0e9,
            write_while_reading: 0.6e9,
            processor_seconds: 0.1e-9,
        }
    }
}

/// What a builder was told about a disk.
#[derive(Debug, Clone)]
pub(crate) struct DiskSettings {
    pub(crate) place: SpillTarget,
    pub(crate) bytes: u64,
}

/// Where the spill file is.
#[derive(Debug, Clone)]
pub(crate) enum SpillTarget {
    /// A new file in this folder.
    Folder(PathBuf),
    /// Given by a test.
    Given(Arc<dyn Disk>),
}

/// A disk that cells and values may wait on.
#[derive(Debug)]
pub(crate) struct DiskTier {
    /// None in a dry run, which moves nothing.
    spill: Option<Store>,
    places: Mutex<Places>,
    /// Extents that were stopped on their way down, by their offset; their places reach to where they were.
    moved: Mutex<BTreeMap<u64, Moved>>,
    /// Where the area starts that a plan uses, while it runs; at the end of all otherwise.
    area: AtomicU64,
    /// The most bytes that were in use.
    most_bytes: AtomicU64,
    /// What it was taken to move at first.
    first_rates: DiskRates,
    /// What it is taken to move.
    rates: Mutex<DiskRates>,
    /// What kernels lose of each second of a processor.
    share: f64,
    writable: bool,
    /// There is nothing but files that parameters are parts of.
    of_files: bool,
}

impl DiskTier {
    /// No disk to write to: only files that parameters are parts of.
    pub(crate) fn of_files((rates, share): (DiskRates, f64)) -> Self {
        Self {
            spill: None,
            places: Mutex::new(Places::new(0)),
            moved: Mutex::new(BTreeMap::new()),
            area: AtomicU64::new(u64::MAX),
            most_bytes: AtomicU64::new(0),
            first_rates: rates,
            rates: Mutex::new(rates),
            share,
            writable: false,
            of_files: true,
        }
    }

    /// Whether there is nothing but files that parameters are parts of.
    pub(crate) fn is_of_files(&self) -> bool {
        self.of_files
    }

    /// Opens the spill file; in a dry run only keeps its books.
    pub(crate) fn open(
        settings: DiskSettings,
        (rates, share): (DiskRates, f64),
        writable: bool,
        dry: bool,
    ) -> Result<Self> {
        let bytes = settings.bytes / BLOCK as u64 * BLOCK as u64;
        // Another number for each run: what one leaves on a disk is no payload of the next.
        let run = std::hash::RandomState::new().build_hasher().finish();
        let spill = match settings.place {
            _ if dry => None,
            SpillTarget::Folder(folder) => {
                let store = spill::open(&folder, bytes, run).map_err(|source| {
                    let hint = if source.is_full() {
                        "free some space there, name another folder, or ask for less"
                    } else {
                        "name an existing folder of a local disk that may be written to"
                    };
                    Error::Build(format!("{source}\n  hint: {hint}"))
                })?;
                Some(store)
            }
            SpillTarget::Given(disk) => {
                let disk: Box<dyn Disk> = Box::new(disk);
                Some(Spill::new(disk, run))
            }
        };
        Ok(Self {
            spill,
            places: Mutex::new(Places::new(bytes)),
            writable,
            of_files: false,
            ..Self::of_files((rates, share))
        })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is taken to move.
    pub(crate) fn rates(&self) -> DiskRates {
        *self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the planner be told what it was told at first. Answers whether that is new.
    pub(crate) fn forget_rates(&self) -> bool {
        let is_new = self.rates() != self.first_rates;
        self.set_rates(self.first_rates);
        is_new
    }

    /// Has the planner be told other rates.
    pub(crate) fn set_rates(&self, rates: DiskRates) {
        *self.rates.lock().unwrap_or_else(PoisonError::into_inner) = rates;
    }

    fn note(&self, bytes: u64) {
        self.most_bytes.fetch_max(bytes, Ordering::AcqRel);
    }
}

impl Below for DiskTier {
    fn tier(&self) -> Tier {
        Tier::Disk
    }

    fn link(&self, room_bytes: u64) -> Link {
        let rates = self.rates();
        Link {
            bytes: room_bytes,
            read: rates.read,
            write: rates.write,
            read_while_writing: rates.read_while_writing,
            write_while_reading: rates.write_while_reading,
            lost: self.share * rates.processor_seconds,
            writable: self.writable,
        }
    }

    fn cost(&self, bytes: u64) -> u64 {
        Extent::footprint(bytes)
    }

    fn usage(&self) -> TierUse {
        let places = self.places();
        TierUse {
            bytes: places.bytes(),
            most_bytes: self.most_bytes.load(Ordering::Acquire),
            room_bytes: places.capacity(),
        }
    }

    fn take(&self, bytes: u64, what: &str) -> Result<Extent> {
        let mut places = self.places();
        let footprint = Extent::footprint(bytes);
        let Some(offset) = places.take(footprint) else {
            return Err(full(&places, footprint, what));
        };
        if offset + footprint > self.area.load(Ordering::Acquire) {
            places.give(offset);
            return Err(full(&places, footprint, what));
        }
        self.note(places.bytes());
        Ok(Extent {
            offset,
            capacity: bytes,
        })
    }

    fn give(&self, extent: Extent) {
        let mut places = self.places();
        self.moved().remove(&extent.offset);
        places.give(extent.offset);
    }

    /// The end of the file, which cells have not reached.
    fn area(&self, bytes: u64) -> Result<u64> {
        let places = self.places();
        let start = places.capacity().checked_sub(bytes);
        let start = start.map(|start| start / BLOCK as u64 * BLOCK as u64);
        match start {
            Some(start) if start >= places.top() => {
                self.note(places.bytes() + bytes);
                self.area.store(start, Ordering::Release);
                Ok(start)
            }
            _ => {
                let bytes = bytes.next_multiple_of(BLOCK as u64);
                Err(full(&places, bytes, "values of the step"))
            }
        }
    }

    fn leave(&self) {
        self.area.store(u64::MAX, Ordering::Release);
    }

    fn write(&self, extent: Extent, tag: Tag, payload: &[u8]) -> Result<(), SpillError> {
        let Some(spill) = &self.spill else {
            return Ok(());
        };
        // What was there does not count from now on.
        if self.moved().remove(&extent.offset).is_some() {
            let footprint = Extent::footprint(extent.capacity);
            self.places().shrink(extent.offset, footprint);
        }
        spill.write(extent, tag, payload)
    }

    fn read(&self, extent: Extent, tag: Tag, payload: &mut [u8]) -> Result<(), SpillError> {
        let Some(spill) = &self.spill else {
            return Ok(());
        };
        let moved = self.moved().get(&extent.offset).copied();
        match moved {
            Some(moved) => spill.read_moved(extent, moved, tag, payload),
            None => spill.read(extent, tag, payload),
        }
    }

    fn lower(&self, extent: &mut Extent, cell: Option<u64>) -> Result<(), SpillError> {
        let from = *extent;
        let footprint = Extent::footprint(from.capacity);
        let mut places = self.places();
        let mut moved = self.moved();
        if let Some(part) = moved.get(&from.offset).copied() {
            // It goes on where it was stopped.
            return self.slide(&mut places, &mut moved, from, (cell, part));
        }
        match places.take(footprint) {
            // Apart from where it is: until all is there, that counts.
            Some(to) if to < from.offset => {
                let mut part = Moved::none(from.offset);
                let to = Extent { offset: to, ..from };
                let copied = self.copy_down(to, cell, &mut part);
                extent.offset = if copied.is_ok() {
                    to.offset
                } else {
                    from.offset
                };
                places.give(if copied.is_ok() {
                    from.offset
                } else {
                    to.offset
                });
                return copied;
            }
            Some(above) => drop(places.give(above)),
            None => {}
        }
        // Its own place is free, if no lower one is that reaches into it.
        places.give(from.offset);
        let to = places.take(footprint).unwrap_or(from.offset);
        if to == from.offset {
            return Ok(());
        }
        // It has both until all is there.
        places.give(to);
        let both = places.take(from.offset - to + footprint);
        debug_assert_eq!(both, Some(to), "what was free for a part is for all");
        extent.offset = to;
        moved.insert(to, Moved::none(from.offset));
        let part = Moved::none(from.offset);
        self.slide(&mut places, &mut moved, *extent, (cell, part))
    }
}

impl DiskTier {
    /// Moves what a cell has put to a higher place down to its extent, which has room for both.
    fn slide(
        &self,
        places: &mut Places,
        moved: &mut BTreeMap<u64, Moved>,
        extent: Extent,
        (cell, mut part): (Option<u64>, Moved),
    ) -> Result<(), SpillError> {
        let copied = self.copy_down(extent, cell, &mut part);
        if copied.is_ok() {
            moved.remove(&extent.offset);
            places.shrink(extent.offset, Extent::footprint(extent.capacity));
        } else {
            moved.insert(extent.offset, part);
        }
        copied
    }

    fn copy_down(&self, to: Extent, cell: Option<u64>, part: &mut Moved) -> Result<(), SpillError> {
        match (&self.spill, cell) {
            (Some(spill), Some(cell)) => spill.lower(cell, to, part),
            _ => Ok(()),
        }
    }

    /// By the offset of their extents.
    fn moved(&self) -> MutexGuard<'_, BTreeMap<u64, Moved>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn full(places: &Places, bytes: u64, what: &str) -> Error {
    Error::DiskFull {
        what: what.to_owned(),
        bytes,
        room_bytes: places.capacity(),
        taken_bytes: places.bytes(),
    }
}
