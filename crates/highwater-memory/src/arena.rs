//! Reserved address space of which exactly the first bytes are usable.

#![expect(
    unsafe_code,
    reason = "address space is mapped, protected and given back here"
)]

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// The base of an arena is a multiple of this, so that huge pages fit from the first byte on.
const HUGE_PAGE: usize = 2 << 20;

/// One stretch of reserved address space, usable up to its *height*.
///
/// ```text
///   guard | base .. height: readable, writable | height .. capacity: inaccessible | guard
/// ```
///
/// Below the height, pages are asked from the system at first touch, in huge pages where possible;
/// the bytes start as zeros. An access behind the height (rounded up to a page) or before the base
/// faults at once. What the arena costs is never more than its height, rounded up to a page: a huge
/// page lies either wholly below the height or is not used.
///
/// The arena hands out raw addresses and holds no record of who uses what: reading and writing
/// through them is the caller's responsibility, also against [`Arena::set_height`] and
/// [`Arena::release`].
#[derive(Debug)]
pub struct Arena {
    mapping: Mapping,
    /// Distance of the base from the start of the mapping.
    start: usize,
    capacity: usize,
    page: usize,
    height: AtomicUsize,
    /// Held while the protection changes.
    changing: Mutex<()>,
}

/// What can go wrong with an [`Arena`].
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The system has no such stretch of address space.
    #[error("cannot reserve {bytes} bytes of address space")]
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
        /// `grow`, `lower` or `empty`.
        change: &'static str,
        /// The height before, in bytes.
        from: u64,
        /// The height asked for, in bytes.
        to: u64,
        /// The system's answer.
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
    rustix::param::page_size() as u64
}

impl Arena {
    /// Reserves address space for `capacity_bytes`. No memory is used: the height is 0.
    ///
    /// # Errors
    /// [`ArenaError::Reserve`] if the address space is not to be had.
    pub fn reserve(capacity_bytes: u64) -> Result<Self, ArenaError> {
        let failed = |source| ArenaError::Reserve {
            bytes: capacity_bytes,
            source,
        };
        let page = rustix::param::page_size();
        // A guard page, room to align the base, the capacity, a guard page.
        let (capacity, len) = usize::try_from(capacity_bytes)
            .ok()
            .and_then(|bytes| bytes.checked_next_multiple_of(page))
            .and_then(|bytes| Some((bytes, bytes.checked_add(HUGE_PAGE + 2 * page)?)))
            .ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
        let mapping = Mapping::new(len).map_err(failed)?;
        let start = page + (mapping.address.addr().get() + page).wrapping_neg() % HUGE_PAGE;
        let arena = Self {
            mapping,
            start,
            capacity: capacity_bytes as usize,
            page,
            height: AtomicUsize::new(0),
            changing: Mutex::new(()),
        };
        // A preference: where huge pages are switched off, small ones do.
        let _ = arena.mapping.ask_for_huge_pages(start..start + capacity);
        Ok(arena)
    }

    /// Makes exactly the first `bytes`, rounded up to a page, readable and writable.
    ///
    /// When lowered, the pages above go back to the system, and their contents are lost; what is
    /// below keeps its contents. The caller sees to it that nobody uses an address above `bytes`.
    ///
    /// # Errors
    /// [`ArenaError::Height`] above the capacity; [`ArenaError::Change`] when the system refuses
    /// (the height is then as before; the contents above `bytes` may be lost).
    pub fn set_height(&self, bytes: u64) -> Result<(), ArenaError> {
        let _changing = self
            .changing
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if bytes > self.capacity() {
            return Err(ArenaError::Height {
                asked: bytes,
                capacity: self.capacity(),
            });
        }
        let from = self.height.load(Ordering::Acquire);
        let to = bytes as usize;
        let (low, high) = (
            from.next_multiple_of(self.page),
            to.next_multiple_of(self.page),
        );
        let changed = match low.cmp(&high) {
            std::cmp::Ordering::Less => self.grow(low..high),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => self.lower(high..low),
        };
        changed.map_err(|source| ArenaError::Change {
            change: if from < to { "grow" } else { "lower" },
            from: from as u64,
            to: bytes,
            source,
        })?;
        self.height.store(to, Ordering::Release);
        Ok(())
    }

    fn grow(&self, added: Range<usize>) -> io::Result<()> {
        self.mapping.protect(
            self.shifted(added),
            MprotectFlags::READ | MprotectFlags::WRITE,
        )
    }

    /// Makes a stretch of whole pages usable, for a caller that does so instead of setting a height.
    pub(crate) fn open(&self, offset: u64, bytes: u64) -> Result<(), ArenaError> {
        self.change("grow", offset, bytes, |stretch| self.grow(stretch))
    }

    /// Gives a stretch of whole pages back, wherever it lies. On Linux its contents are
    /// zeros when it is opened again.
    pub(crate) fn close(&self, offset: u64, bytes: u64) -> Result<(), ArenaError> {
        self.change("lower", offset, bytes, |stretch| self.lower(stretch))
    }

    fn change(
        &self,
        change: &'static str,
        offset: u64,
        bytes: u64,
        by: impl FnOnce(Range<usize>) -> io::Result<()>,
    ) -> Result<(), ArenaError> {
        let _changing = self
            .changing
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let (start, end) = (offset as usize, (offset + bytes) as usize);
        by(start..end.next_multiple_of(self.page)).map_err(|source| ArenaError::Change {
            change,
            from: offset,
            to: offset + bytes,
            source,
        })
    }

    fn lower(&self, dropped: Range<usize>) -> io::Result<()> {
        // A huge page that is dropped in part only would stay whole, and charged, until the system
        // is short of memory. Freeing lazily splits it now, so that the dropped part really goes.
        let first = dropped.start.next_multiple_of(HUGE_PAGE).min(dropped.end);
        let last = (dropped.end / HUGE_PAGE * HUGE_PAGE).max(first);
        for part in [dropped.start..first, last..dropped.end] {
            if !part.is_empty() {
                let _ = self.mapping.split_huge_page(self.shifted(part));
            }
        }
        let dropped = self.shifted(dropped);
        self.mapping
            .protect(dropped.clone(), MprotectFlags::empty())?;
        self.mapping.give_back(dropped)
    }

    /// Gives all pages back to the system. The height stays; the contents are zeros from now on.
    ///
    /// # Errors
    /// [`ArenaError::Change`] when the system refuses.
    pub fn release(&self) -> Result<(), ArenaError> {
        let _changing = self
            .changing
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        self.mapping
            .give_back(self.shifted(0..self.mapped()))
            .map_err(|source| ArenaError::Change {
                change: "empty",
                from: self.height(),
                to: self.height(),
                source,
            })
    }

    /// The address of the first byte, a multiple of 2 MiB.
    pub fn base(&self) -> *mut u8 {
        self.mapping.at(self.start)
    }

    /// The address of `len` bytes at `offset`, both in bytes.
    ///
    /// # Errors
    /// [`ArenaError::OutOfBounds`] unless all of them lie below the height.
    pub fn ptr(&self, offset: u64, len: u64) -> Result<*mut u8, ArenaError> {
        let height = self.height();
        match offset.checked_add(len) {
            Some(end) if end <= height => Ok(self.mapping.at(self.start + offset as usize)),
            _ => Err(ArenaError::OutOfBounds {
                offset,
                len,
                height,
            }),
        }
    }

    /// The usable bytes, as last set.
    pub fn height(&self) -> u64 {
        self.height.load(Ordering::Acquire) as u64
    }

    /// The bytes that can be used before a fault: the height rounded up to a page. The arena's cost
    /// in memory is at most this.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped() as u64
    }

    /// What `bytes` of height cost: `bytes` rounded up to a page.
    pub fn round_up(&self, bytes: u64) -> u64 {
        bytes
            .checked_next_multiple_of(self.page as u64)
            .unwrap_or(u64::MAX)
    }

    /// The highest height that can be set, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// The addresses that the reservation covers, for telling its pages from others' in
    /// [`Reserve`](crate::Reserve).
    pub fn addresses(&self) -> Range<usize> {
        let start = self.mapping.address.addr().get();
        start..start + self.mapping.len
    }

    /// The bytes of memory that the arena occupies now, as counted by the system.
    ///
    /// # Errors
    /// Where the system does not tell: without `/proc/self/smaps`.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        crate::smaps::resident_bytes(&self.addresses())
    }

    fn mapped(&self) -> usize {
        self.height
            .load(Ordering::Acquire)
            .next_multiple_of(self.page)
    }

    /// Offsets from the base as offsets from the start of the mapping.
    fn shifted(&self, range: Range<usize>) -> Range<usize> {
        self.start + range.start..self.start + range.end
    }
}

/// An anonymous private mapping, unmapped when dropped. Ranges are offsets from its start, in bytes;
/// those passed in are multiples of the page size and inside it.
#[derive(Debug)]
struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain address space, owned by this value alone and tied to no thread; all
// changes to it are system calls, which may come from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method reads or writes the mapped bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Inaccessible address space that is charged to nobody.
    fn new(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE;
        #[cfg(target_os = "linux")]
        let flags = flags | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the system picks addresses that nobody uses.
        let address =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags)? };
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, len })
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.address.as_ptr().wrapping_add(offset)
    }

    fn protect(&self, range: Range<usize>, flags: MprotectFlags) -> io::Result<()> {
        debug_assert!(range.end <= self.len);
        // SAFETY: the range lies inside this mapping, so no memory of others loses its protection;
        // who holds addresses into it has taken on that it can become inaccessible.
        unsafe { rustix::mm::mprotect(self.at(range.start).cast(), range.len(), flags)? };
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn advise(&self, range: Range<usize>, advice: rustix::mm::Advice) -> io::Result<()> {
        debug_assert!(range.end <= self.len);
        // SAFETY: the range lies inside this mapping; advice that drops contents is only given for
        // bytes that the arena's caller has declared unused.
        unsafe { rustix::mm::madvise(self.at(range.start).cast(), range.len(), advice)? };
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn ask_for_huge_pages(&self, range: Range<usize>) -> io::Result<()> {
        self.advise(range, rustix::mm::Advice::LinuxHugepage)
    }

    #[cfg(target_os = "linux")]
    fn split_huge_page(&self, range: Range<usize>) -> io::Result<()> {
        self.advise(range, rustix::mm::Advice::LinuxFree)
    }

    #[cfg(target_os = "linux")]
    fn give_back(&self, range: Range<usize>) -> io::Result<()> {
        self.advise(range, rustix::mm::Advice::LinuxDontNeed)
    }

    #[cfg(not(target_os = "linux"))]
    fn ask_for_huge_pages(&self, _range: Range<usize>) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn split_huge_page(&self, _range: Range<usize>) -> io::Result<()> {
        Ok(())
    }

    /// Elsewhere there is no call that promises zeros: the pages stay until the arena goes.
    #[cfg(not(target_os = "linux"))]
    fn give_back(&self, _range: Range<usize>) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, made in `new` and owned by this value alone. An error would
        // mean that it is not mapped: nothing is left to do then.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests;
