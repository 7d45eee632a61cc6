//! What a spill file asks of a disk: positioned transfers and nothing else, so that tests can script them.

use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

/// Positioned transfers of several buffers at once. A transfer may be short.
///
/// While one is under way, a disk may show `seen` the buffers' bytes: from the first on, in order and
/// each once, whole blocks at a time. Bytes that are read it shows when they have come for good; it
/// never shows more of them than it then says it read.
pub trait Disk: Send + Sync + Debug {
    /// Writes some of the buffers' bytes, from the first on, and says how many.
    ///
    /// # Errors
    /// As the system says, where not one byte was written.
    fn write_at(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize>;

    /// Reads into some of the buffers' bytes, from the first on, and says how many; 0 at the end of the
    /// file.
    ///
    /// # Errors
    /// As the system says, where not one byte was read.
    fn read_at(
        &self,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize>;

    /// How bytes travel, in a few words.
    fn backend(&self) -> &'static str;
}

macro_rules! forward {
    ($pointer:ident) => {
        impl<D: Disk + ?Sized> Disk for $pointer<D> {
            fn write_at(
                &self,
                offset: u64,
                parts: &[IoSlice<'_>],
                seen: &mut dyn FnMut(&[u8]),
            ) -> io::Result<usize> {
                (**self).write_at(offset, parts, seen)
            }

            fn read_at(
                &self,
                offset: u64,
                parts: &mut [IoSliceMut<'_>],
                seen: &mut dyn FnMut(&[u8]),
            ) -> io::Result<usize> {
                (**self).read_at(offset, parts, seen)
            }

            fn backend(&self) -> &'static str {
                (**self).backend()
            }
        }
    };
}

forward!(Box);
forward!(Arc);
