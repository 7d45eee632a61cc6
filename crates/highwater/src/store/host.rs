//! Host memory beside the memory that kernels work in: rooms for cells, and an area for plans.
//!
//! On a machine without a device both are memory of the process, and a transfer is a copy.

#![expect(
    unsafe_code,
    reason = "a transfer is a copy to or from rooms of an arena"
)]

use crate::store::tiers::{Below, TierUse};
use crate::{Error, Result};
use highwater_memory::spill::{Extent, SpillError, Tag};
use highwater_memory::{Arena, DeviceMemory, Room, Rooms, RoomsError, System};
use highwater_plan::{Link, Tier};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What copies to and from host memory are taken to move: bytes per second with nothing under way the
/// other way, and with something. Those of no machine in particular, so that plans are the same on all.
const ALONE: f64 = 8.0e9;
const BOTH_WAYS: f64 = 5.0e9;

/// Host memory of which at most so many bytes are ever mapped.
#[derive(Debug)]
pub(crate) struct HostTier {
    books: Mutex<Books>,
    /// Where the rooms are.
    memory: Arc<dyn DeviceMemory>,
    room_bytes: u64,
    /// Alone, and both ways.
    rates: (f64, f64),
    /// What kernels lose of each second that a copy takes.
    share: f64,
}

#[derive(Debug)]
struct Books {
    rooms: Rooms,
    /// Where plans put values: stays until one needs a larger one, or a cell the room.
    area: Option<Room>,
    /// Whether a plan that runs uses the area.
    in_use: bool,
    most_bytes: u64,
}

impl HostTier {
    /// Reserves address space. No memory is used.
    pub(crate) fn new(
        (system, addresses): (&dyn System, u64),
        room_bytes: u64,
        (rates, share): (Option<(f64, f64)>, f64),
    ) -> Result<Self> {
        let rooms = Rooms::reserve(system, addresses)?;
        Ok(Self {
            memory: Arc::clone(rooms.arena().memory()),
            books: Mutex::new(Books {
                rooms,
                area: None,
                in_use: false,
                most_bytes: 0,
            }),
            room_bytes,
            rates: rates.unwrap_or((ALONE, BOTH_WAYS)),
            share,
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function with the address space underneath.
    pub(crate) fn with_arena<R>(&self, look: impl FnOnce(&Arena) -> R) -> R {
        look(self.books().rooms.arena())
    }

    /// Bytes that are mapped.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.books().rooms.bytes()
    }

    fn full(&self, books: &Books, bytes: u64, what: &str) -> Error {
        Error::HostFull {
            what: what.to_owned(),
            bytes: books.rooms.cost(bytes),
            room_bytes: self.room_bytes,
            taken_bytes: books.rooms.bytes(),
        }
    }

    fn open(&self, books: &mut Books, bytes: u64, what: &str) -> Result<Room> {
        let is_full = |books: &Books| {
            let taken = books.rooms.bytes();
            taken.saturating_add(books.rooms.cost(bytes)) > self.room_bytes
        };
        if is_full(books) && !books.in_use {
            books.close_area();
        }
        if is_full(books) {
            return Err(self.full(books, bytes, what));
        }
        let room = books.rooms.take(bytes).map_err(|error| match error {
            RoomsError::Full { .. } => self.full(books, bytes, what),
            RoomsError::Arena(source) => Error::Arena(source),
        })?;
        books.most_bytes = books.most_bytes.max(books.rooms.bytes());
        Ok(room)
    }

    /// Copies a payload to or from an extent, while others may copy theirs.
    fn copy(
        &self,
        extent: Extent,
        (tag, bytes, verb): (Tag, usize, &'static str),
        copy: impl FnOnce(&dyn DeviceMemory) -> io::Result<()>,
    ) -> Result<(), SpillError> {
        let cell = tag.cell;
        let (bytes, capacity) = (bytes as u64, extent.capacity);
        let is_taken = self.books().rooms.address(room(extent)).is_some();
        if bytes > capacity || !is_taken {
            let capacity = if is_taken { capacity } else { 0 };
            return Err(SpillError::Extent {
                cell,
                bytes,
                capacity,
            });
        }
        copy(&*self.memory).map_err(|source| SpillError::Transfer {
            verb,
            cell,
            done: 0,
            bytes,
            source,
        })
    }
}

impl Books {
    fn close_area(&mut self) {
        if let Some(area) = self.area.take() {
            // A system that refuses to take pages back leaves them mapped; the room is free all the same.
            drop(self.rooms.give(area));
        }
    }
}

impl Below for HostTier {
    fn tier(&self) -> Tier {
        Tier::Host
    }

    fn link(&self, room_bytes: u64) -> Link {
        let (alone, both_ways) = self.rates;
        Link {
            bytes: room_bytes,
            read: alone,
            write: alone,
            read_while_writing: both_ways,
            write_while_reading: both_ways,
            lost: self.share / alone,
            writable: true,
        }
    }

    fn cost(&self, bytes: u64) -> u64 {
        self.books().rooms.cost(bytes)
    }

    fn usage(&self) -> TierUse {
        let books = self.books();
        TierUse {
            bytes: books.rooms.bytes(),
            most_bytes: books.most_bytes,
            room_bytes: self.room_bytes,
        }
    }

    fn take(&self, bytes: u64, what: &str) -> Result<Extent> {
        let room = self.open(&mut self.books(), bytes, what)?;
        Ok(Extent {
            offset: room.offset,
            capacity: bytes,
        })
    }

    fn give(&self, extent: Extent) {
        // As for the area.
        drop(self.books().rooms.give(room(extent)));
    }

    fn area(&self, bytes: u64) -> Result<u64> {
        let mut books = self.books();
        if bytes == 0 {
            return Ok(0);
        }
        if books.area.is_none_or(|area| area.bytes < bytes) {
            books.close_area();
            books.area = Some(self.open(&mut books, bytes, "values of the step")?);
        }
        books.in_use = true;
        Ok(books.area.map_or(0, |area| area.offset))
    }

    fn leave(&self) {
        self.books().in_use = false;
    }

    fn write(&self, extent: Extent, tag: Tag, payload: &[u8]) -> Result<(), SpillError> {
        self.copy(extent, (tag, payload.len(), "write"), |memory| {
            // SAFETY: these bytes are taken, and so mapped, until who owns the place gives it back; it has
            // lent it for this call. What a plan moves is ordered by its waits, which are proved.
            unsafe { memory.copy_in(extent.offset, payload) }
        })
    }

    fn read(&self, extent: Extent, tag: Tag, payload: &mut [u8]) -> Result<(), SpillError> {
        self.copy(extent, (tag, payload.len(), "read"), |memory| {
            // SAFETY: as in `write`.
            unsafe { memory.copy_out(extent.offset, payload) }
        })
    }
}

fn room(extent: Extent) -> Room {
    Room {
        offset: extent.offset,
        bytes: extent.capacity,
    }
}
