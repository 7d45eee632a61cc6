//! The spill file: where values wait on disk while a run lasts.
//!
//! One file, whose space is reserved at the start and whose name is gone before the first byte is
//! written, so that a run that is killed leaves nothing behind. It is made of *extents*; each holds
//! one payload behind a header that says whose it is:
//!
//! ```text
//!   header: one block | payload: whole blocks | the rest of the payload: one block, filled with zeros
//! ```
//!
//! A payload counts as read only if header and payload are what was written last: flipped bits, lost
//! ends, extents in the wrong place and old ones in the right place are all errors that name the cell.
//! Bytes go straight between the disk and the caller's memory where that starts at a block, as requests
//! of a MiB of which several are under way, and are hashed meanwhile.

mod disk;
mod file;
mod hash;
mod header;
mod measure;
mod open;
mod requests;
#[cfg(test)]
mod tests;
mod threads;
#[cfg(target_os = "linux")]
mod uring;

pub use disk::Disk;
pub use file::{free_bytes, is_memory};
pub(crate) use hash::hash_of;
pub use header::Damage;
pub use measure::{Bandwidths, measure};
pub use open::{Backend, Store, open, open_with};

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};

use crate::arena::ArenaError;
use crate::files::PartError;
use crate::size::Bytes;
use hash::Hash;
use header::Header;

/// Offsets, lengths and addresses of direct transfers are multiples of this, in bytes.
pub const BLOCK: usize = 4096;
/// How often in a row a transfer may get nowhere (`EINTR`, `EAGAIN`) before it is given up.
const PATIENCE: u32 = 1000;
/// Bytes that are copied at a time where memory does not start at a block.
const BOUNCE: usize = 64 * BLOCK;

/// Memory of one block, where transfers want it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

const ZEROS: Block = Block([0; BLOCK]);

/// A stretch of the file that holds one payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where its header is, in bytes: a multiple of [`BLOCK`].
    pub offset: u64,
    /// The most bytes that a payload may have.
    pub capacity: u64,
}

impl Extent {
    /// What an extent for payloads of up to `capacity` bytes takes in the file, in bytes.
    #[must_use]
    pub fn footprint(capacity: u64) -> u64 {
        BLOCK as u64 + capacity.next_multiple_of(BLOCK as u64)
    }
}

/// How much of an extent has come from a higher place to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Where its header was, in bytes.
    pub from: u64,
    /// How many of its bytes are where they belong, from the header on, in whole blocks. What is behind them
    /// is where it was.
    pub bytes: u64,
}

impl Moved {
    /// Nothing yet.
    #[must_use]
    pub fn none(from: u64) -> Self {
        Self { from, bytes: 0 }
    }
}

/// Whose payload it is, and which of its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The cell.
    pub cell: u64,
    /// How often the cell had been written.
    pub version: u64,
}

/// What can go wrong with a spill file.
#[derive(Debug, thiserror::Error)]
pub enum SpillError {
    /// The file could not be made, or its space not reserved.
    #[error("cannot {} in {}: {}", wanted(source, *bytes), folder.display(), reason(source, folder, *free_bytes))]
    Create {
        /// The folder it was to be in.
        folder: PathBuf,
        /// The space that was asked for.
        bytes: u64,
        /// The space that there is, where the system tells.
        free_bytes: Option<u64>,
        /// The system's answer.
        source: io::Error,
    },
    /// A transfer failed.
    #[error("cannot {verb} cell {cell}: {done} of {bytes} bytes were transferred")]
    Transfer {
        /// `write` or `read`.
        verb: &'static str,
        /// The cell.
        cell: u64,
        /// Bytes that were transferred, the header's included.
        done: u64,
        /// Bytes that were to be transferred.
        bytes: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no memory to measure a disk with.
    #[error("no {} of memory to measure a disk with", Bytes(*bytes))]
    Memory {
        /// The memory that was asked for.
        bytes: u64,
        /// The system's answer.
        source: ArenaError,
    },
    /// What was read is not what was written.
    #[error("cell {cell} on disk is damaged: {damage}")]
    Damaged {
        /// The cell that was asked for.
        cell: u64,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A payload is larger than its extent.
    #[error("cell {cell} has {bytes} bytes, its extent holds {capacity}")]
    Extent {
        /// The cell.
        cell: u64,
        /// Bytes of the payload.
        bytes: u64,
        /// What the extent holds.
        capacity: u64,
    },
    /// The part of a file that a cell is could not be read.
    #[error(transparent)]
    File(PartError),
}

impl SpillError {
    /// Whether there is no space left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Create { source, .. } | Self::Transfer { source, .. } => is_full(source),
            Self::Memory { .. } | Self::Damaged { .. } | Self::Extent { .. } | Self::File(_) => {
                false
            }
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

/// Why a folder cannot hold a file, as people say it.
/// What was to be done: how much space was asked for matters only where it is the space that lacks.
fn wanted(error: &io::Error, bytes: u64) -> String {
    if is_full(error) {
        format!("reserve {}", Bytes(bytes))
    } else {
        "create a file".to_owned()
    }
}

fn reason(error: &io::Error, folder: &Path, free_bytes: Option<u64>) -> String {
    match error.kind() {
        ErrorKind::NotFound if !folder.is_dir() => "there is no such folder".to_owned(),
        ErrorKind::NotADirectory => "that is not a folder".to_owned(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            format!("the folder cannot be written to ({error})")
        }
        _ => match free_bytes.filter(|_| is_full(error)) {
            Some(free) if error.kind() == ErrorKind::FileTooLarge => format!(
                "{} are free there, and `ulimit -f` or the file system may allow less for one file \
                 ({error})",
                Bytes(free)
            ),
            Some(free) => format!("{} are free there ({error})", Bytes(free)),
            None => error.to_string(),
        },
    }
}

/// Payloads on disk.
#[derive(Debug)]
pub struct Spill<D> {
    disk: D,
    run: u64,
}

impl<D: Disk> Spill<D> {
    /// One on a disk, for the run of this number: extents of another run are damage.
    pub fn new(disk: D, run: u64) -> Self {
        Self { disk, run }
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// How bytes travel, in a few words: `io_uring, direct`, say.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.disk.backend()
    }

    /// Writes a payload into its extent.
    ///
    /// # Errors
    /// [`SpillError::Extent`] if it does not fit; [`SpillError::Transfer`] as the disk says. The extent
    /// holds nothing then.
    pub fn write(&self, extent: Extent, tag: Tag, payload: &[u8]) -> Result<(), SpillError> {
        check(extent, tag, payload.len())?;
        let bytes = payload.len() as u64;
        let start = extent.offset + BLOCK as u64;
        let (whole, rest) = payload.split_at(payload.len() / BLOCK * BLOCK);
        let mut tail = ZEROS;
        tail.0[..rest.len()].copy_from_slice(rest);
        let tail = &tail.0[..rest.len().next_multiple_of(BLOCK)];
        let mut transfer = Transfer::new("write", tag.cell, Extent::footprint(bytes));
        let mut hash = Hash::of_bytes(0..whole.len());
        if is_aligned(whole) {
            self.put(start, &[whole, tail], &mut transfer, &mut hash)?;
        } else {
            let mut bounce = vec![0; BOUNCE.min(whole.len()) + BLOCK];
            let bounce = aligned(&mut bounce);
            for (i, chunk) in whole.chunks(BOUNCE).enumerate() {
                let chunk_copy = &mut bounce[..chunk.len()];
                chunk_copy.copy_from_slice(chunk);
                let offset = start + (i * BOUNCE) as u64;
                self.put(offset, &[chunk_copy], &mut transfer, &mut Hash::none())?;
            }
            let offset = start + whole.len() as u64;
            self.put(offset, &[tail], &mut transfer, &mut Hash::none())?;
        }
        // The header goes last: until then the extent is that of nobody, or damaged.
        let mut head = ZEROS;
        Header::of(self.run, tag, bytes, hash.finish(payload)).put(&mut head.0);
        self.put(extent.offset, &[&head.0], &mut transfer, &mut Hash::none())
    }

    /// Reads a payload, and verifies that it is the one that was written for the tag.
    ///
    /// # Errors
    /// [`SpillError::Transfer`] as the disk says, [`SpillError::Damaged`] for anything but that payload.
    /// What is in `payload` means nothing then.
    pub fn read(&self, extent: Extent, tag: Tag, payload: &mut [u8]) -> Result<(), SpillError> {
        self.read_moved(extent, Moved::none(extent.offset), tag, payload)
    }

    /// As [`Spill::read`], of an extent of which [`Spill::lower`] moved some before it was stopped.
    ///
    /// # Errors
    /// As [`Spill::read`].
    pub fn read_moved(
        &self,
        extent: Extent,
        moved: Moved,
        tag: Tag,
        payload: &mut [u8],
    ) -> Result<(), SpillError> {
        check(extent, tag, payload.len())?;
        let (mut head, mut tail) = (ZEROS, ZEROS);
        let bytes = payload.len();
        let (whole, rest) = payload.split_at_mut(bytes / BLOCK * BLOCK);
        let tail = &mut tail.0[..rest.len().next_multiple_of(BLOCK)];
        let mut transfer = Transfer::new("read", tag.cell, Extent::footprint(bytes as u64));
        let mut hash = Hash::of_bytes(BLOCK..BLOCK + whole.len());
        if is_aligned(whole) && moved.bytes == 0 {
            let mut parts: [&mut [u8]; 3] = [&mut head.0, whole, tail];
            self.get(moved.from, &mut parts, &mut transfer, &mut hash)?;
        } else {
            let start = BLOCK as u64;
            self.get_moved(extent, moved, 0, &mut head.0, &mut transfer)?;
            let mut bounce = vec![0; BOUNCE.min(whole.len()) + BLOCK];
            let bounce = aligned(&mut bounce);
            for (i, chunk) in whole.chunks_mut(BOUNCE).enumerate() {
                let chunk_copy = &mut bounce[..chunk.len()];
                let at = start + (i * BOUNCE) as u64;
                self.get_moved(extent, moved, at, chunk_copy, &mut transfer)?;
                chunk.copy_from_slice(chunk_copy);
            }
            let at = start + whole.len() as u64;
            self.get_moved(extent, moved, at, tail, &mut transfer)?;
        }
        let (end, filling) = tail.split_at(rest.len());
        rest.copy_from_slice(end);
        let filled = filling.iter().all(|&byte| byte == 0);
        let wanted = Header::of(self.run, tag, bytes as u64, hash.finish(payload));
        let found = Header::take(&head.0);
        let verified = found.and_then(|found| found.verify(&wanted));
        let verified = verified.and(if filled { Ok(()) } else { Err(Damage::Payload) });
        verified.map_err(|damage| SpillError::Damaged {
            cell: tag.cell,
            damage,
        })
    }

    /// Moves what an extent of a cell holds from a higher place to its own, as it is: who reads it there
    /// verifies it. The two may overlap: each step is as long as they lie apart, at most, so that what is
    /// written over has been moved before. `moved` says how far it is, and goes on from there.
    ///
    /// # Errors
    /// [`SpillError::Transfer`] as the disk says. What is behind `moved` is then still where it was, and
    /// [`Spill::read_moved`] reads all of it.
    pub fn lower(&self, cell: u64, extent: Extent, moved: &mut Moved) -> Result<(), SpillError> {
        let bytes = Extent::footprint(extent.capacity);
        let mut read = Transfer::new("read", cell, bytes);
        let mut write = Transfer::new("write", cell, bytes);
        (read.done, write.done) = (moved.bytes, moved.bytes);
        let apart = moved.from.saturating_sub(extent.offset);
        let step = apart.clamp(BLOCK as u64, BOUNCE as u64) as usize;
        let mut bounce = vec![0; step + BLOCK];
        let bounce = aligned(&mut bounce);
        while moved.bytes < bytes {
            let at = moved.bytes;
            let chunk = &mut bounce[..step.min((bytes - at) as usize)];
            let mut none = Hash::none();
            self.get(moved.from + at, &mut [&mut *chunk], &mut read, &mut none)?;
            self.put(extent.offset + at, &[&*chunk], &mut write, &mut none)?;
            moved.bytes += chunk.len() as u64;
        }
        Ok(())
    }

    /// Reads bytes of an extent, the first of them this far from its header.
    fn get_moved(
        &self,
        extent: Extent,
        moved: Moved,
        at: u64,
        to: &mut [u8],
        transfer: &mut Transfer,
    ) -> Result<(), SpillError> {
        let low = moved.bytes.saturating_sub(at).min(to.len() as u64);
        let (low, high) = to.split_at_mut(low as usize);
        let above = moved.from + at + low.len() as u64;
        let mut none = Hash::none();
        self.get(extent.offset + at, &mut [low], transfer, &mut none)?;
        self.get(above, &mut [high], transfer, &mut none)
    }

    fn put(
        &self,
        at: u64,
        parts: &[&[u8]],
        transfer: &mut Transfer,
        hash: &mut Hash,
    ) -> Result<(), SpillError> {
        transfer.run(parts.iter().map(|part| part.len()).sum(), |done| {
            let mut skip = done;
            let left = parts.iter().filter_map(|part| {
                let from = skip.min(part.len());
                skip -= from;
                (from < part.len()).then(|| IoSlice::new(&part[from..]))
            });
            let left: Vec<IoSlice<'_>> = left.collect();
            let seen = &mut hash.from(done);
            self.disk.write_at(at + done as u64, &left, seen)
        })
    }

    fn get(
        &self,
        at: u64,
        parts: &mut [&mut [u8]],
        transfer: &mut Transfer,
        hash: &mut Hash,
    ) -> Result<(), SpillError> {
        transfer.run(parts.iter().map(|part| part.len()).sum(), |done| {
            let mut skip = done;
            let left = parts.iter_mut().filter_map(|part| {
                let from = skip.min(part.len());
                skip -= from;
                (from < part.len()).then(|| IoSliceMut::new(&mut part[from..]))
            });
            let mut left: Vec<IoSliceMut<'_>> = left.collect();
            let seen = &mut hash.from(done);
            self.disk.read_at(at + done as u64, &mut left, seen)
        })
    }
}

fn check(extent: Extent, tag: Tag, bytes: usize) -> Result<(), SpillError> {
    if bytes as u64 > extent.capacity {
        return Err(SpillError::Extent {
            cell: tag.cell,
            bytes: bytes as u64,
            capacity: extent.capacity,
        });
    }
    Ok(())
}

fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(BLOCK)
}

/// What of this memory, which is a block longer than is needed, starts at a block.
fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let start = memory.as_ptr().addr().wrapping_neg() % BLOCK;
    let bytes = memory.len() - BLOCK;
    &mut memory[start..start + bytes]
}

/// What is known of the transfer of an extent.
struct Transfer {
    verb: &'static str,
    cell: u64,
    done: u64,
    bytes: u64,
}

impl Transfer {
    fn new(verb: &'static str, cell: u64, bytes: u64) -> Self {
        Self {
            verb,
            cell,
            done: 0,
            bytes,
        }
    }

    /// Calls `step` with what is done until all of `bytes` is, whole blocks at a time: the end of what
    /// came short of a block is transferred again.
    fn run(
        &mut self,
        bytes: usize,
        mut step: impl FnMut(usize) -> io::Result<usize>,
    ) -> Result<(), SpillError> {
        let (mut done, mut stuck) = (0, 0);
        while done < bytes {
            let nothing = match step(done) {
                Ok(0) => io::Error::from(ErrorKind::UnexpectedEof),
                Ok(count) if count >= BLOCK => {
                    done += count / BLOCK * BLOCK;
                    stuck = 0;
                    continue;
                }
                Ok(_) => io::Error::from(ErrorKind::UnexpectedEof),
                Err(error) if is_transient(&error) => error,
                Err(error) => return Err(self.failed(done, error)),
            };
            stuck += 1;
            if stuck == PATIENCE {
                return Err(self.failed(done, nothing));
            }
            std::thread::yield_now();
        }
        self.done += bytes as u64;
        Ok(())
    }

    fn failed(&self, done: usize, source: io::Error) -> SpillError {
        SpillError::Transfer {
            verb: self.verb,
            cell: self.cell,
            done: self.done + done as u64,
            bytes: self.bytes,
            source,
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}
