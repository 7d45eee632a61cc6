//! Reserved address space of which exactly the first bytes are usable.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::system::{DeviceAddress, DeviceMemory, HostSystem, System};

/// One stretch of reserved address space, usable up to its *height*.
///
/// ```text
///   guard | base .. height: readable, writable | height .. capacity: inaccessible | guard
/// ```
///
/// On the host, pages below the height are asked from the system at first touch, in huge pages where
/// possible; the bytes start as zeros. An access behind the height (rounded up to a page) or before the base
/// faults at once. What the arena costs is never more than its height, rounded up to a page: a huge
/// page lies either wholly below the height or is not used.
///
/// The arena hands out raw addresses and holds no record of who uses what: reading and writing
/// through them is the caller's responsibility, also against [`Arena::set_height`].
#[derive(Debug)]
pub struct Arena {
    memory: Arc<dyn DeviceMemory>,
    capacity: u64,
    page: u64,
    height: AtomicU64,
    /// Held while what is mapped changes.
    changing: Mutex<()>,
}

/// What can go wrong with an [`Arena`].
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The system has no such stretch of address space.
    #[error("cannot reserve {bytes} bytes of address space, which `ulimit -v` may limit")]
    Reserve {
        /// The capacity asked for.
        bytes: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// The height asked for is above the capacity that was reserved.
    #[error("an arena of {capacity} bytes cannot be {asked} bytes high")]
    Height {
        /// The height asked for, in bytes.
        asked: u64,
        /// The capacity reserved, in bytes.
        capacity: u64,
    },
    /// The system refused to change the height, or to take pages back.
    #[error("cannot {change} an arena from {from} to {to} bytes")]
    Change {
        /// `grow` or `lower`.
        change: &'static str,
        /// The height before, in bytes.
        from: u64,
        /// The height asked for, in bytes.
        to: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// The device did not copy bytes of it.
    #[error("cannot copy {bytes} bytes of an arena: {source}")]
    Copy {
        /// How many.
        bytes: u64,
        /// The device's answer.
        source: io::Error,
    },
    /// An address range that is not wholly below the height.
    #[error("bytes {offset}..{offset}+{len} lie outside an arena {height} bytes high")]
    OutOfBounds {
        /// Where the range starts, in bytes from the base.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// The arena's height in bytes.
        height: u64,
    },
}

/// Bytes of a page of memory on this system.
#[must_use]
pub fn page_bytes() -> u64 {
    HostSystem.page_bytes()
}

impl Arena {
    /// Reserves address space of the host for `capacity_bytes`. No memory is used: the height is 0.
    ///
    /// # Errors
    /// [`ArenaError::Reserve`] if the address space is not to be had.
    pub fn reserve(capacity_bytes: u64) -> Result<Self, ArenaError> {
        Self::reserve_on(&HostSystem, capacity_bytes)
    }

    /// As [`Arena::reserve`], on a system of choice.
    ///
    /// # Errors
    /// As [`Arena::reserve`].
    pub fn reserve_on(system: &dyn System, capacity_bytes: u64) -> Result<Self, ArenaError> {
        let failed = |source| ArenaError::Reserve {
            bytes: capacity_bytes,
            source,
        };
        let page = system.page_bytes();
        let bytes = capacity_bytes.checked_next_multiple_of(page);
        let bytes = bytes.ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self {
            memory: system.reserve(bytes).map_err(failed)?.into(),
            capacity: capacity_bytes,
            page,
            height: AtomicU64::new(0),
            changing: Mutex::new(()),
        })
    }

    /// Makes exactly the first `bytes`, rounded up to a page, readable and writable.
    ///
    /// When lowered, the pages above go back to the system, and their contents are lost; what is
    /// below keeps its contents. The caller sees to it that nobody uses an address above `bytes`.
    ///
    /// # Errors
    /// [`ArenaError::Height`] above the capacity; [`ArenaError::Change`] when the system refuses
    /// (the contents above `bytes` may be lost; the height is as before, or `bytes`).
    pub fn set_height(&self, bytes: u64) -> Result<(), ArenaError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > self.capacity {
            return Err(ArenaError::Height {
                asked: bytes,
                capacity: self.capacity,
            });
        }
        let from = self.height();
        let (low, high) = (self.round_up(from), self.round_up(bytes));
        let changed = match low.cmp(&high) {
            std::cmp::Ordering::Less => self.memory.map(low..high),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => self.memory.unmap(high..low).inspect_err(|_| {
                // Half of it may be done. What cannot be used must not lie below the height.
                if self.memory.map(high..low).is_err() {
                    self.height.store(bytes, Ordering::Release);
                }
            }),
        };
        changed.map_err(|source| ArenaError::Change {
            change: if from < bytes { "grow" } else { "lower" },
            from,
            to: bytes,
            source,
        })?;
        self.height.store(bytes, Ordering::Release);
        Ok(())
    }

    /// Makes a stretch of whole pages usable, for a caller that does so instead of setting a height.
    pub(crate) fn open(&self, offset: u64, bytes: u64) -> Result<(), ArenaError> {
        self.change("grow", offset, bytes, |range| self.memory.map(range))
    }

    /// Gives a stretch of whole pages back, wherever it lies. On Linux its contents are
    /// zeros when it is opened again.
    pub(crate) fn close(&self, offset: u64, bytes: u64) -> Result<(), ArenaError> {
        self.change("lower", offset, bytes, |range| self.memory.unmap(range))
    }

    fn change(
        &self,
        change: &'static str,
        offset: u64,
        bytes: u64,
        by: impl FnOnce(Range<u64>) -> io::Result<()>,
    ) -> Result<(), ArenaError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let end = offset + bytes;
        by(offset..self.round_up(end)).map_err(|source| ArenaError::Change {
            change,
            from: offset,
            to: end,
            source,
        })
    }

    /// The address of the first byte, a multiple of 2 MiB.
    pub fn base(&self) -> DeviceAddress {
        self.memory.base()
    }

    /// The address of `len` bytes at `offset`, both in bytes.
    ///
    /// # Errors
    /// [`ArenaError::OutOfBounds`] unless all of them lie below the height.
    pub fn address(&self, offset: u64, len: u64) -> Result<DeviceAddress, ArenaError> {
        let height = self.height();
        match offset.checked_add(len) {
            Some(end) if end <= height => Ok(self.memory.base().above(offset)),
            _ => Err(ArenaError::OutOfBounds {
                offset,
                len,
                height,
            }),
        }
    }

    /// The memory underneath, to copy to and from.
    pub fn memory(&self) -> &Arc<dyn DeviceMemory> {
        &self.memory
    }

    /// The usable bytes, as last set.
    pub fn height(&self) -> u64 {
        self.height.load(Ordering::Acquire)
    }

    /// The bytes that can be used before a fault: the height rounded up to a page. The arena's cost
    /// in memory is at most this.
    pub fn mapped_bytes(&self) -> u64 {
        self.round_up(self.height())
    }

    /// What `bytes` of height cost: `bytes` rounded up to a page.
    pub fn round_up(&self, bytes: u64) -> u64 {
        bytes
            .checked_next_multiple_of(self.page)
            .unwrap_or(u64::MAX)
    }

    /// The highest height that can be set, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The addresses of the process that the reservation covers, for telling its pages from others' in
    /// [`Reserve`](crate::Reserve); none of a device that is not the host.
    pub fn addresses(&self) -> Range<usize> {
        self.memory.host_addresses().unwrap_or(0..0)
    }

    /// The bytes of the process's memory that the arena occupies now, as counted by the system.
    ///
    /// # Errors
    /// Where the system does not tell: without `/proc/self/smaps`.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        crate::smaps::resident_bytes(&self.addresses())
    }
}

#[cfg(test)]
mod tests;
