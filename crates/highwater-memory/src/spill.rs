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
//! Bytes go straight between the disk and the caller's memory where that starts at a block.

mod disk;
mod header;
#[cfg(test)]
mod tests;

pub use disk::{Disk, SpillFile};
pub use header::Damage;

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::path::PathBuf;

use header::Header;

/// Offsets, lengths and addresses of direct transfers are multiples of this, in bytes.
pub const BLOCK: usize = 4096;
/// How often in a row a transfer may get nowhere (`EINTR`, `EAGAIN`) before it is given up.
const PATIENCE: u32 = 1000;
/// Blocks that are copied at a time where memory does not start at a block.
const BOUNCE: usize = 64;

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
    #[error("cannot keep {bytes} bytes in {}", folder.display())]
    Create {
        /// The folder it was to be in.
        folder: PathBuf,
        /// The space that was asked for.
        bytes: u64,
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
}

impl SpillError {
    /// Whether there is no space left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Create { source, .. } | Self::Transfer { source, .. } => {
                source.kind() == ErrorKind::StorageFull
            }
            Self::Damaged { .. } | Self::Extent { .. } => false,
        }
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

    /// Writes a payload into its extent.
    ///
    /// # Errors
    /// [`SpillError::Extent`] if it does not fit; [`SpillError::Transfer`] as the disk says. The extent
    /// holds nothing then.
    pub fn write(&self, extent: Extent, tag: Tag, payload: &[u8]) -> Result<(), SpillError> {
        check(extent, tag, payload.len())?;
        let mut head = ZEROS;
        Header::of(self.run, tag, payload).put(&mut head.0);
        let start = extent.offset + BLOCK as u64;
        let (whole, rest) = payload.split_at(payload.len() / BLOCK * BLOCK);
        let mut tail = ZEROS;
        tail.0[..rest.len()].copy_from_slice(rest);
        let tail = &tail.0[..rest.len().next_multiple_of(BLOCK)];
        let mut transfer =
            Transfer::new("write", tag.cell, Extent::footprint(payload.len() as u64));
        if is_aligned(whole) {
            let parts: [&[u8]; 3] = [&head.0, whole, tail];
            return self.put(extent.offset, &parts, &mut transfer);
        }
        // The header goes last: until then the extent is that of nobody, or damaged.
        let mut bounce = vec![ZEROS; BOUNCE.min(whole.len() / BLOCK)];
        for (i, chunk) in whole.chunks(BOUNCE * BLOCK).enumerate() {
            let blocks = &mut bounce[..chunk.len() / BLOCK];
            for (block, bytes) in blocks.iter_mut().zip(chunk.chunks(BLOCK)) {
                block.0.copy_from_slice(bytes);
            }
            let offset = start + (i * BOUNCE * BLOCK) as u64;
            let parts: Vec<&[u8]> = blocks.iter().map(|block| block.0.as_slice()).collect();
            self.put(offset, &parts, &mut transfer)?;
        }
        self.put(start + whole.len() as u64, &[tail], &mut transfer)?;
        self.put(extent.offset, &[&head.0], &mut transfer)
    }

    /// Reads a payload, and verifies that it is the one that was written for the tag.
    ///
    /// # Errors
    /// [`SpillError::Transfer`] as the disk says, [`SpillError::Damaged`] for anything but that payload.
    /// What is in `payload` means nothing then.
    pub fn read(&self, extent: Extent, tag: Tag, payload: &mut [u8]) -> Result<(), SpillError> {
        check(extent, tag, payload.len())?;
        let (mut head, mut tail) = (ZEROS, ZEROS);
        let bytes = payload.len();
        let start = extent.offset + BLOCK as u64;
        let (whole, rest) = payload.split_at_mut(bytes / BLOCK * BLOCK);
        let kept = rest.len();
        let tail = &mut tail.0[..kept.next_multiple_of(BLOCK)];
        let mut transfer = Transfer::new("read", tag.cell, Extent::footprint(bytes as u64));
        if is_aligned(whole) {
            let mut parts: [&mut [u8]; 3] = [&mut head.0, whole, tail];
            self.get(extent.offset, &mut parts, &mut transfer)?;
        } else {
            self.get(extent.offset, &mut [&mut head.0], &mut transfer)?;
            let mut bounce = vec![ZEROS; BOUNCE.min(whole.len() / BLOCK)];
            for (i, chunk) in whole.chunks_mut(BOUNCE * BLOCK).enumerate() {
                let blocks = &mut bounce[..chunk.len() / BLOCK];
                let offset = start + (i * BOUNCE * BLOCK) as u64;
                let mut parts: Vec<&mut [u8]> = blocks
                    .iter_mut()
                    .map(|block| block.0.as_mut_slice())
                    .collect();
                self.get(offset, &mut parts, &mut transfer)?;
                for (block, bytes) in blocks.iter().zip(chunk.chunks_mut(BLOCK)) {
                    bytes.copy_from_slice(&block.0);
                }
            }
            self.get(
                start + (bytes - kept) as u64,
                &mut [&mut *tail],
                &mut transfer,
            )?;
        }
        rest.copy_from_slice(&tail[..kept]);
        let filled = tail[kept..].iter().all(|&byte| byte == 0);
        let found = Header::take(&head.0);
        let verified = found.and_then(|found| found.verify(self.run, tag, payload));
        let verified = verified.and(if filled { Ok(()) } else { Err(Damage::Payload) });
        verified.map_err(|damage| SpillError::Damaged {
            cell: tag.cell,
            damage,
        })
    }

    fn put(&self, at: u64, parts: &[&[u8]], transfer: &mut Transfer) -> Result<(), SpillError> {
        transfer.run(parts.iter().map(|part| part.len()).sum(), |done| {
            let mut skip = done;
            let left = parts.iter().filter_map(|part| {
                let from = skip.min(part.len());
                skip -= from;
                (from < part.len()).then(|| IoSlice::new(&part[from..]))
            });
            let left: Vec<IoSlice<'_>> = left.collect();
            self.disk.write_at(at + done as u64, &left)
        })
    }

    fn get(
        &self,
        at: u64,
        parts: &mut [&mut [u8]],
        transfer: &mut Transfer,
    ) -> Result<(), SpillError> {
        transfer.run(parts.iter().map(|part| part.len()).sum(), |done| {
            let mut skip = done;
            let left = parts.iter_mut().filter_map(|part| {
                let from = skip.min(part.len());
                skip -= from;
                (from < part.len()).then(|| IoSliceMut::new(&mut part[from..]))
            });
            let mut left: Vec<IoSliceMut<'_>> = left.collect();
            self.disk.read_at(at + done as u64, &mut left)
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
