//! Requests carried out by the kernel itself, through a ring (`io_uring`).

#![expect(
    unsafe_code,
    reason = "requests name memory that is lent to the kernel"
)]

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, types::Fd};

use super::file::SpillFile;
use super::is_transient;
use super::requests::{DEPTH, Landed, Lane, Request, Way};

/// How often the kernel may be too busy for a request before that is an error.
const PATIENCE: u32 = 1000;

/// A ring over a file. Nothing is registered with it, so that it takes next to no locked memory.
pub(super) struct Ring {
    queues: IoUring,
    file: Arc<SpillFile>,
    /// The kernel refuses requests: one may lie in the queue that must never be handed over.
    broken: bool,
}

impl Ring {
    /// Sets one up, and sees whether it works.
    ///
    /// # Errors
    /// Where the kernel has none, or does not let this process use it.
    pub(super) fn new(file: &Arc<SpillFile>) -> io::Result<Self> {
        let mut ring = Self {
            queues: IoUring::new(DEPTH as u32)?,
            file: file.clone(),
            broken: false,
        };
        let nothing = opcode::Nop::new().build();
        // SAFETY: it uses no memory.
        unsafe { ring.hand_over(&nothing) }?;
        while ring.land(true).is_none() {}
        Ok(ring)
    }

    /// Puts a request into the queue and has the kernel take it.
    ///
    /// # Safety
    /// The memory that it uses stays valid until its end has been told.
    unsafe fn hand_over(&mut self, entry: &io_uring::squeue::Entry) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("the kernel refused an earlier request"));
        }
        // SAFETY: as the caller promises.
        let pushed = unsafe { self.queues.submission().push(entry) };
        // There are as many places as requests at a time, and the kernel empties them at once.
        pushed.map_err(io::Error::other)?;
        let mut tries = 0;
        loop {
            let result = self.queues.submit();
            if self.queues.submission().is_empty() {
                return Ok(());
            }
            match result {
                Err(error) if !is_transient(&error) && error.kind() != ErrorKind::ResourceBusy => {
                    self.broken = true;
                    return Err(error);
                }
                _ if tries == PATIENCE => {
                    self.broken = true;
                    return Err(io::Error::other("the kernel takes no request"));
                }
                _ => tries += 1,
            }
            std::thread::yield_now();
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("file", &self.file)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

impl Lane for Ring {
    unsafe fn start(&mut self, request: &Request) -> io::Result<()> {
        let file = Fd(self.file.descriptor());
        let (parts, count) = (request.parts.cast(), request.count as u32);
        let entry = match request.way {
            Way::Write => opcode::Writev::new(file, parts, count)
                .offset(request.offset)
                .build(),
            Way::Read => opcode::Readv::new(file, parts, count)
                .offset(request.offset)
                .build(),
        };
        // SAFETY: as the caller promises; parts are laid out as `iovec`s.
        unsafe { self.hand_over(&entry.user_data(request.number as u64)) }
    }

    fn land(&mut self, wait: bool) -> Option<Landed> {
        let mut next = self.queues.completion().next();
        if next.is_none() && wait {
            // Waiting also hands over what is in the queue; without it, ends are told all the same.
            let waited = !self.broken && self.queues.submit_and_wait(1).is_ok();
            if !waited {
                std::thread::sleep(Duration::from_millis(1));
            }
            next = self.queues.completion().next();
        }
        let entry = next?;
        let result = match entry.result() {
            code if code < 0 => Err(io::Error::from_raw_os_error(-code)),
            bytes => Ok(bytes as usize),
        };
        Some((entry.user_data() as usize, result))
    }
}
