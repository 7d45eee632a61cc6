//! The machine's own memory and threads.

#![expect(
    unsafe_code,
    reason = "address space is mapped, protected and given back here"
)]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use super::{DeviceAddress, DeviceMemory, System};

/// The base is a multiple of this, so that huge pages fit from the first byte on.
const HUGE_PAGE: usize = 2 << 20;

/// The host: memory is anonymous pages, in huge pages where possible.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSystem;

// SAFETY: the page's size is the system's own, and a mapping is made for all bytes that are asked for.
unsafe impl System for HostSystem {
    fn page_bytes(&self) -> u64 {
        rustix::param::page_size() as u64
    }

    fn reserve(&self, bytes: u64) -> io::Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(HostMemory::reserve(bytes)?))
    }

    fn address_space(&self) -> Option<u64> {
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            let bound = rustix::process::getrlimit(rustix::process::Resource::As).current?;
            let taken = std::fs::read_to_string("/proc/self/statm").ok()?;
            let pages: u64 = taken.split_ascii_whitespace().next()?.parse().ok()?;
            Some(bound.saturating_sub(pages.saturating_mul(self.page_bytes())))
        }
        #[cfg(not(all(target_os = "linux", not(miri))))]
        None
    }

    fn admit_thread(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Reserved addresses of the process:
///
/// ```text
///   guard | base .. mapped, or inaccessible, page by page | guard
/// ```
///
/// Below, pages are asked from the system at first touch. An access to what is not mapped faults at once.
#[derive(Debug)]
struct HostMemory {
    mapping: Mapping,
    /// Distance of the base from the start of the mapping.
    start: usize,
    bytes: usize,
}

impl HostMemory {
    fn reserve(bytes: u64) -> io::Result<Self> {
        let page = rustix::param::page_size();
        // A guard page, room to align the base, the bytes, a guard page.
        let sum = usize::try_from(bytes).ok().and_then(|bytes| {
            let len = bytes.checked_add(HUGE_PAGE + 2 * page)?;
            Some((bytes, len.checked_next_multiple_of(page)?))
        });
        let (bytes, len) = sum.ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::new(len)?;
        let start = page + (mapping.address.addr().get() + page).wrapping_neg() % HUGE_PAGE;
        let memory = Self {
            mapping,
            start,
            bytes,
        };
        // A preference: where huge pages are switched off, small ones do.
        let _ = memory
            .mapping
            .ask_for_huge_pages(memory.shifted(0..bytes as u64));
        Ok(memory)
    }

    /// Offsets from the base as offsets from the start of the mapping.
    fn shifted(&self, range: Range<u64>) -> Range<usize> {
        assert!(
            range.start <= range.end && range.end <= self.bytes as u64,
            "a range must lie inside what was reserved"
        );
        self.start + range.start as usize..self.start + range.end as usize
    }

    /// The address of bytes inside what was reserved.
    fn at(&self, offset: u64, bytes: usize) -> *mut u8 {
        let end = offset.saturating_add(bytes as u64);
        self.mapping.at(self.shifted(offset..end).start)
    }
}

// SAFETY: the mapping is this value's own until it is dropped, and begins where `start` says.
unsafe impl DeviceMemory for HostMemory {
    fn base(&self) -> DeviceAddress {
        DeviceAddress::new(self.mapping.at(self.start))
    }

    fn map(&self, range: Range<u64>) -> io::Result<()> {
        self.mapping.open(self.shifted(range))
    }

    fn unmap(&self, range: Range<u64>) -> io::Result<()> {
        // A huge page that is dropped in part only would stay whole, and charged, until the system
        // is short of memory. Freeing lazily splits it now, so that the dropped part really goes.
        let huge = HUGE_PAGE as u64;
        let first = range.start.next_multiple_of(huge).min(range.end);
        let last = (range.end / huge * huge).max(first);
        for part in [range.start..first, last..range.end] {
            if !part.is_empty() {
                let _ = self.mapping.split_huge_page(self.shifted(part));
            }
        }
        self.mapping.close(self.shifted(range))
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> io::Result<()> {
        let to = self.at(to, from.len());
        // SAFETY: mapped and of nobody else by the caller's promise; what others reach by a slice is none of
        // it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    unsafe fn copy_out(&self, from: u64, to: &mut [u8]) -> io::Result<()> {
        let from = self.at(from, to.len());
        // SAFETY: as above; pages are zeros or what was put there, so they are initialised.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn host_addresses(&self) -> Option<Range<usize>> {
        let start = self.mapping.address.addr().get();
        Some(start..start + self.mapping.len)
    }
}

/// Address space, given back when dropped. Ranges are offsets from its start, in bytes, inside it; those
/// that are opened and closed are whole pages.
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
    fn at(&self, offset: usize) -> *mut u8 {
        self.address.as_ptr().wrapping_add(offset)
    }
}

#[cfg(not(miri))]
mod pages;
/// Miri knows no mappings: memory of the heap does, of which what is closed means nothing.
#[cfg(miri)]
#[path = "host/heap.rs"]
mod pages;
