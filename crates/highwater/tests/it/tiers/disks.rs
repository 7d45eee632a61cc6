//! A disk in memory that fails as it is told.

use highwater::memory::spill::Disk;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a call may do instead of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Full,
    Broken,
    Interrupted,
    NotNow,
    Short,
}

impl Fault {
    pub(super) const ALL: [Self; 5] = [
        Self::Full,
        Self::Broken,
        Self::Interrupted,
        Self::NotNow,
        Self::Short,
    ];

    /// Whether trying again is no use.
    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::Full | Self::Broken)
    }

    fn error(self) -> Option<ErrorKind> {
        match self {
            Self::Full => Some(ErrorKind::StorageFull),
            Self::Broken => Some(ErrorKind::Other),
            Self::Interrupted => Some(ErrorKind::Interrupted),
            Self::NotNow => Some(ErrorKind::WouldBlock),
            Self::Short => None,
        }
    }
}

/// Bytes in memory; from a call on, or at that call alone, it has a fault.
#[derive(Debug)]
pub(super) struct Scripted {
    bytes: Mutex<Vec<u8>>,
    calls: AtomicUsize,
    script: Option<(usize, Fault, bool)>,
}

impl Scripted {
    pub(super) fn new(bytes: u64, script: Option<(usize, Fault, bool)>) -> Self {
        Self {
            bytes: Mutex::new(vec![0; bytes as usize]),
            calls: AtomicUsize::new(0),
            script,
        }
    }

    /// How often it was called.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Flips one bit of each block.
    pub(super) fn flip_everywhere(&self) {
        let mut bytes = self.bytes.lock().unwrap();
        for block in bytes.chunks_mut(4096) {
            block[100] ^= 4;
        }
    }

    /// How many of so many bytes a call may move.
    fn call(&self, bytes: usize) -> io::Result<usize> {
        let now = self.calls.fetch_add(1, Ordering::Relaxed);
        let hit = |&(at, _, for_good): &(usize, Fault, bool)| now == at || for_good && now > at;
        match self.script.filter(hit) {
            None => Ok(bytes),
            Some((_, fault, _)) => match fault.error() {
                Some(kind) => Err(kind.into()),
                None => Ok((bytes / 2).max(1)),
            },
        }
    }
}

impl Disk for Scripted {
    fn write_at(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        _seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        let count = self.call(parts.iter().map(|part| part.len()).sum())?;
        let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let start = offset as usize;
        self.bytes.lock().unwrap()[start..start + count].copy_from_slice(&all[..count]);
        Ok(count)
    }

    fn backend(&self) -> &'static str {
        "a test's memory"
    }

    fn read_at(
        &self,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
        _seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<usize> {
        let count = self.call(parts.iter().map(|part| part.len()).sum())?;
        let bytes = self.bytes.lock().unwrap();
        let mut from = &bytes[offset as usize..][..count];
        for part in parts {
            let (now, later) = from.split_at(part.len().min(from.len()));
            part[..now.len()].copy_from_slice(now);
            from = later;
        }
        Ok(count)
    }
}
