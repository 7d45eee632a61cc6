//! What an engine asks of the system it runs on: memory of a device, and threads. All of it can be refused.
//!
//! [`HostSystem`] is the machine's own memory and threads, [`ScriptedSystem`] one that tests have refuse a
//! call. An accelerator is another [`System`], whose [`DeviceMemory`] lies where the host may not reach.

mod host;
mod scripted;

pub use host::HostSystem;
pub use scripted::ScriptedSystem;

use std::fmt::Debug;
use std::io;
use std::ops::Range;

/// A system that an engine runs on.
///
/// # Safety
/// An engine gives out references to the memory of a system: [`System::page_bytes`] is always the same power of two,
/// and what [`System::reserve`] answers covers at least the bytes that were asked for.
#[expect(unsafe_code, reason = "what it answers is relied on")]
pub unsafe trait System: Send + Sync + Debug {
    /// The bytes of a page: what is mapped and unmapped are whole ones.
    fn page_bytes(&self) -> u64;

    /// Reserves addresses for `bytes`, whole pages. None of them can be used yet, and no memory is taken.
    ///
    /// # Errors
    /// As the system says.
    fn reserve(&self, bytes: u64) -> io::Result<Box<dyn DeviceMemory>>;

    /// How many bytes of addresses may still be reserved; none where there is no bound.
    fn address_space(&self) -> Option<u64>;

    /// Called before a thread is started.
    ///
    /// # Errors
    /// Where there is to be none.
    fn admit_thread(&self) -> io::Result<()>;
}

/// Reserved addresses of a device, of which parts can be used. Ranges are in bytes from the base: whole
/// pages inside what was reserved. Given back when dropped.
///
/// # Safety
/// [`DeviceMemory::base`] is always the same, and the addresses from it on are this value's alone, until it is dropped.
/// What was mapped stays as it is until it is unmapped. [`DeviceMemory::host_addresses`] has all of them that the host
/// can follow.
#[expect(
    unsafe_code,
    reason = "copies have promises to be kept, and so has who answers addresses"
)]
pub unsafe trait DeviceMemory: Send + Sync + Debug {
    /// The first address: a multiple of 2 MiB.
    fn base(&self) -> DeviceAddress;

    /// Has memory for a range from now on, which is zeros where it was never used or came from
    /// [`DeviceMemory::unmap`].
    ///
    /// # Errors
    /// As the system says; the range is as it was then.
    fn map(&self, range: Range<u64>) -> io::Result<()>;

    /// Gives the memory of a range back, wherever it lies. What was there is lost. Who calls sees to it that
    /// nobody uses it.
    ///
    /// # Errors
    /// As the system says; some of the range may be given back then, and none of it may be used.
    fn unmap(&self, range: Range<u64>) -> io::Result<()>;

    /// Copies bytes of the host to the device, which has them when this returns.
    ///
    /// # Safety
    /// The bytes from `to` on are mapped, and nobody else uses them meanwhile.
    ///
    /// # Errors
    /// As the device says; where memory of the host is memory of the device, there are none.
    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> io::Result<()>;

    /// Copies bytes of the device to the host, which has them when this returns.
    ///
    /// # Safety
    /// The bytes from `from` on are mapped, and nobody writes them meanwhile.
    ///
    /// # Errors
    /// As [`DeviceMemory::copy_in`].
    unsafe fn copy_out(&self, from: u64, to: &mut [u8]) -> io::Result<()>;

    /// The addresses of the process that it covers; none if it takes none of them.
    fn host_addresses(&self) -> Option<Range<usize>>;
}

/// An address in the memory of a device: of the process, where the device is the host, and else a number
/// that only the device's own kernels and copies can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress(*mut u8);

impl DeviceAddress {
    /// One that the device answered.
    #[must_use]
    pub fn new(address: *mut u8) -> Self {
        Self(address)
    }

    /// No address: of what has no bytes.
    #[must_use]
    pub fn null() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Whether it is none.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// So many bytes further up.
    #[must_use]
    pub fn above(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes as usize))
    }

    /// For kernels of the device. Where that is the host, a pointer to follow.
    #[must_use]
    pub fn as_ptr(self) -> *mut u8 {
        self.0
    }
}

#[cfg(test)]
mod tests;
