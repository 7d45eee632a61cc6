//! Anonymous private mappings.

#![expect(
    unsafe_code,
    reason = "address space is mapped, protected and given back here"
)]

use super::Mapping;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

impl Mapping {
    /// Inaccessible address space that is charged to nobody.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE;
        #[cfg(target_os = "linux")]
        let flags = flags | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the system picks addresses that nobody uses.
        let address =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags)? };
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, len })
    }

    /// Makes a range readable and writable.
    pub(super) fn open(&self, range: Range<usize>) -> io::Result<()> {
        self.protect(range, MprotectFlags::READ | MprotectFlags::WRITE)
    }

    /// Makes a range inaccessible and gives its pages back.
    pub(super) fn close(&self, range: Range<usize>) -> io::Result<()> {
        self.protect(range.clone(), MprotectFlags::empty())?;
        self.give_back(range)
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
    pub(super) fn ask_for_huge_pages(&self, range: Range<usize>) -> io::Result<()> {
        self.advise(range, rustix::mm::Advice::LinuxHugepage)
    }

    #[cfg(target_os = "linux")]
    pub(super) fn split_huge_page(&self, range: Range<usize>) -> io::Result<()> {
        self.advise(range, rustix::mm::Advice::LinuxFree)
    }

    #[cfg(target_os = "linux")]
    fn give_back(&self, range: Range<usize>) -> io::Result<()> {
        self.advise(range, rustix::mm::Advice::LinuxDontNeed)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn ask_for_huge_pages(&self, _range: Range<usize>) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn split_huge_page(&self, _range: Range<usize>) -> io::Result<()> {
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
