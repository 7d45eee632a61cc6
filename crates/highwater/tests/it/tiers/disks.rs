//! A disk in memory that fails, or loses what it holds, as it is told.

use highwater::memory::spill::{BLOCK, Disk};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a call may do instead of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Full,
    Broken,
    Interrupted,
    NotNow,
    Short,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [
        Self::Full,
        Self::Broken,
        Self::Interrupted,
        Self::NotNow,
        Self::Short,
    ];

    /// Whether trying again is no use.
    pub(crate) fn is_final(self) -> bool {
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

/// What a disk may do to what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// A bit changes.
    Flip,
    /// All behind some byte is gone.
    Cut,
    /// Two extents change places.
    Swap,
    /// An extent is as it was before it was written last.
    Stale,
}

impl Loss {
    pub(crate) const ALL: [Self; 4] = [Self::Flip, Self::Cut, Self::Swap, Self::Stale];
}

/// What goes wrong, and from which call on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Script {
    Fault {
        at: usize,
        fault: Fault,
        for_good: bool,
    },
    Loss {
        at: usize,
        loss: Loss,
        /// Which bit, byte or extents.
        seed: u64,
    },
}

/// Bytes in memory; from a call on, or at that call alone, something goes wrong.
#[derive(Debug)]
pub(crate) struct Scripted {
    held: Mutex<Held>,
    calls: AtomicUsize,
    script: Option<Script>,
}

#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    /// Of each write, by its place, what it wrote over.
    before: BTreeMap<usize, Vec<u8>>,
}

impl Scripted {
    pub(crate) fn new(bytes: u64, script: Option<Script>) -> Self {
        Self {
            held: Mutex::new(Held {
                bytes: vec![0; bytes as usize],
                before: BTreeMap::new(),
            }),
            calls: AtomicUsize::new(0),
            script,
        }
    }

    /// How often it was called.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Flips one bit of each block.
    pub(crate) fn flip_everywhere(&self) {
        for block in self.held.lock().unwrap().bytes.chunks_mut(BLOCK) {
            block[100] ^= 4;
        }
    }

    /// How many of so many bytes a call may move.
    fn call(&self, bytes: usize) -> io::Result<usize> {
        let now = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.script {
            Some(Script::Fault {
                at,
                fault,
                for_good,
            }) if now == at || for_good && now > at => match fault.error() {
                Some(kind) => Err(kind.into()),
                None => Ok((bytes / 2).max(1)),
            },
            Some(Script::Loss { at, loss, seed }) if now == at => {
                self.held.lock().unwrap().lose(loss, Draw(seed));
                Ok(bytes)
            }
            _ => Ok(bytes),
        }
    }
}

/// Numbers that depend on a seed alone.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        for _ in 0..2 {
            let next = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D);
            self.0 = next.wrapping_add(0x1405_7B7E_F767_814F);
        }
        (self.0 >> 20) as usize % end
    }
}

impl Held {
    fn lose(&mut self, loss: Loss, mut draw: Draw) {
        let extents = self.extents();
        if extents.is_empty() {
            return;
        }
        match loss {
            Loss::Flip => {
                let (at, bytes) = extents[draw.below(extents.len())];
                self.bytes[at + draw.below(bytes)] ^= 1 << draw.below(8);
            }
            Loss::Cut => {
                let (at, bytes) = extents[draw.below(extents.len())];
                self.bytes.truncate(at + draw.below(bytes));
            }
            Loss::Swap => {
                let (a, bytes_a) = extents[draw.below(extents.len())];
                let (b, bytes_b) = extents[draw.below(extents.len())];
                let bytes = bytes_a.min(bytes_b);
                let was = self.bytes[a..a + bytes].to_vec();
                self.bytes.copy_within(b..b + bytes, a);
                self.bytes[b..b + bytes].copy_from_slice(&was);
            }
            Loss::Stale => {
                let (at, _) = extents[draw.below(extents.len())];
                for place in [at, at + BLOCK] {
                    let old = self.before[&place].clone();
                    self.bytes[place..place + old.len()].copy_from_slice(&old);
                }
            }
        }
    }

    /// Where extents start, and their bytes: a header's block, and the payload behind it.
    fn extents(&self) -> Vec<(usize, usize)> {
        let headers = self.before.iter().filter(|(_, old)| old.len() == BLOCK);
        let extent = |(&at, _): (&usize, &Vec<u8>)| {
            let payload = self.before.get(&(at + BLOCK))?;
            Some((at, BLOCK + payload.len()))
        };
        headers.filter_map(extent).collect()
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
        let (start, end) = (offset as usize, offset as usize + count);
        let mut held = self.held.lock().unwrap();
        let Held { bytes, before } = &mut *held;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        let was = before.entry(start).or_default();
        was.clear();
        was.extend_from_slice(&bytes[start..end]);
        let mut to = &mut bytes[start..end];
        for part in parts {
            let (now, later) = to.split_at_mut(part.len().min(to.len()));
            now.copy_from_slice(&part[..now.len()]);
            to = later;
        }
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
        let held = self.held.lock().unwrap();
        let left = held.bytes.get(offset as usize..).unwrap_or_default();
        let mut from = &left[..count.min(left.len())];
        let count = from.len();
        for part in parts {
            let (now, later) = from.split_at(part.len().min(from.len()));
            part[..now.len()].copy_from_slice(now);
            from = later;
        }
        Ok(count)
    }
}
