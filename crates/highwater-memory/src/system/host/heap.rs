//! Memory of the heap in place of a mapping, for Miri. What is closed is not initialised, so that Miri sees
//! who reads it; what is opened is zeros.

#![expect(unsafe_code, reason = "memory is taken and given back here")]

use super::Mapping;
use std::alloc::{Layout, alloc, dealloc};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

/// More than any test needs.
const MOST: usize = 1 << 30;

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, 4096).expect("the length was looked at when it was taken")
}

impl Mapping {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        if len > MOST {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // SAFETY: the length is not 0: there are guards.
        let address = NonNull::new(unsafe { alloc(layout(len)) });
        let address = address.ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, len })
    }

    pub(super) fn open(&self, range: Range<usize>) -> io::Result<()> {
        // SAFETY: inside the memory; nobody uses what was closed.
        unsafe { std::ptr::write_bytes(self.at(range.start), 0, range.len()) };
        Ok(())
    }

    pub(super) fn close(&self, range: Range<usize>) -> io::Result<()> {
        // At once: Miri takes a microsecond for each round of a loop.
        let nothing = [MaybeUninit::<u8>::uninit(); 1 << 16];
        let to = self.at(range.start).cast::<MaybeUninit<u8>>();
        for at in (0..range.len()).step_by(nothing.len()) {
            let count = nothing.len().min(range.len() - at);
            // SAFETY: as above; what is copied is of this function.
            unsafe { std::ptr::copy_nonoverlapping(nothing.as_ptr(), to.add(at), count) };
        }
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "as where there are pages")]
    pub(super) fn ask_for_huge_pages(&self, _range: Range<usize>) -> io::Result<()> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "as where there are pages")]
    pub(super) fn split_huge_page(&self, _range: Range<usize>) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: taken in `new` with this layout, and owned by this value alone.
        unsafe { dealloc(self.address.as_ptr(), layout(self.len)) };
    }
}
