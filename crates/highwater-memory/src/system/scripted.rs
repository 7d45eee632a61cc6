//! For tests: a system that refuses a chosen call.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{DeviceAddress, DeviceMemory, HostSystem, System};

/// The host, of which one call is refused: reserving, mapping, unmapping, a copy, a thread.
#[derive(Clone, Debug)]
pub struct ScriptedSystem {
    script: Arc<Script>,
}

#[derive(Debug)]
struct Script {
    calls: AtomicU64,
    refused: u64,
    persistent: bool,
    address_space: Option<u64>,
}

impl ScriptedSystem {
    /// One that refuses the call of this number, counted from 0; if `persistent`, all that come after it too.
    #[must_use]
    pub fn refusing(call: u64, persistent: bool) -> Self {
        Self {
            script: Arc::new(Script {
                calls: AtomicU64::new(0),
                refused: call,
                persistent,
                address_space: None,
            }),
        }
    }

    /// One that refuses nothing, and only counts.
    #[must_use]
    pub fn counting() -> Self {
        Self::refusing(u64::MAX, false)
    }

    /// One that tells that so many bytes of addresses are left, whatever is reserved.
    #[must_use]
    pub fn with_address_space(bytes: u64) -> Self {
        let mut system = Self::counting();
        if let Some(script) = Arc::get_mut(&mut system.script) {
            script.address_space = Some(bytes);
        }
        system
    }

    /// How many calls there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.script.calls.load(Ordering::Relaxed)
    }
}

impl Script {
    fn call(&self) -> io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call == self.refused || self.persistent && call > self.refused {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(())
    }
}

#[expect(unsafe_code, reason = "promises are handed on")]
// SAFETY: all answers are those of the host.
unsafe impl System for ScriptedSystem {
    fn page_bytes(&self) -> u64 {
        HostSystem.page_bytes()
    }

    fn reserve(&self, bytes: u64) -> io::Result<Box<dyn DeviceMemory>> {
        self.script.call()?;
        Ok(Box::new(ScriptedMemory {
            memory: HostSystem.reserve(bytes)?,
            script: Arc::clone(&self.script),
        }))
    }

    fn address_space(&self) -> Option<u64> {
        self.script
            .address_space
            .or_else(|| HostSystem.address_space())
    }

    fn admit_thread(&self) -> io::Result<()> {
        self.script.call()
    }
}

#[derive(Debug)]
struct ScriptedMemory {
    memory: Box<dyn DeviceMemory>,
    script: Arc<Script>,
}

#[expect(unsafe_code, reason = "promises are handed on")]
// SAFETY: it is the host's memory; what the script refuses does not happen.
unsafe impl DeviceMemory for ScriptedMemory {
    fn base(&self) -> DeviceAddress {
        self.memory.base()
    }

    fn map(&self, range: Range<u64>) -> io::Result<()> {
        self.script.call()?;
        self.memory.map(range)
    }

    fn unmap(&self, range: Range<u64>) -> io::Result<()> {
        self.script.call()?;
        self.memory.unmap(range)
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> io::Result<()> {
        self.script.call()?;
        // SAFETY: as the caller promises.
        unsafe { self.memory.copy_in(to, from) }
    }

    unsafe fn copy_out(&self, from: u64, to: &mut [u8]) -> io::Result<()> {
        self.script.call()?;
        // SAFETY: as the caller promises.
        unsafe { self.memory.copy_out(from, to) }
    }

    fn host_addresses(&self) -> Option<Range<usize>> {
        self.memory.host_addresses()
    }
}
