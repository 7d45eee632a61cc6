//! What stands before a payload, so that no other is taken for it.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use super::{BLOCK, Tag};

const MAGIC: u64 = u64::from_le_bytes(*b"HWspill1");
/// Words of a header: magic, run, cell, version, length, two of the payload's hash, its own hash.
const WORDS: usize = 8;

/// What is wrong with an extent that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The header is not one, or not as it was written.
    #[error("its header is not what was written")]
    Header,
    /// The extent is of another run.
    #[error("it is of another run")]
    Run,
    /// The extent is of another cell.
    #[error("it is cell {0}")]
    Cell(u64),
    /// The extent is of another state of the cell.
    #[error("it is version {found}, not {wanted}")]
    Version {
        /// The version on disk.
        found: u64,
        /// The version that was asked for.
        wanted: u64,
    },
    /// The payload has another length.
    #[error("it has {found} bytes, not {wanted}")]
    Length {
        /// Bytes of the payload on disk.
        found: u64,
        /// Bytes that were asked for.
        wanted: u64,
    },
    /// The payload is not what was written.
    #[error("its bytes are not what was written")]
    Payload,
}

/// A header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    run: u64,
    tag: Tag,
    length: u64,
    hash: u128,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} of run {}, {} bytes",
            self.tag, self.run, self.length
        )
    }
}

impl Header {
    /// That of a payload of so many bytes and this XXH3.
    pub(super) fn of(run: u64, tag: Tag, length: u64, hash: u128) -> Self {
        Self {
            run,
            tag,
            length,
            hash,
        }
    }

    /// Writes it to the start of a block.
    pub(super) fn put(&self, block: &mut [u8; BLOCK]) {
        let (low, high) = (self.hash as u64, (self.hash >> 64) as u64);
        let words = [
            MAGIC,
            self.run,
            self.tag.cell,
            self.tag.version,
            self.length,
            low,
            high,
        ];
        for (place, word) in block.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let own = 8 * (WORDS - 1);
        let hash = xxh3_64(&block[..own]);
        block[own..own + 8].copy_from_slice(&hash.to_le_bytes());
    }

    /// Reads it from the start of a block.
    pub(super) fn take(block: &[u8; BLOCK]) -> Result<Self, Damage> {
        let mut words = [0; WORDS];
        for (word, place) in words.iter_mut().zip(block.chunks_exact(8)) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(place);
            *word = u64::from_le_bytes(bytes);
        }
        let [magic, run, cell, version, length, low, high, own] = words;
        let (header, rest) = block.split_at(8 * WORDS);
        let empty = rest.iter().all(|&byte| byte == 0);
        if magic != MAGIC || own != xxh3_64(&header[..8 * (WORDS - 1)]) || !empty {
            return Err(Damage::Header);
        }
        Ok(Self {
            run,
            tag: Tag { cell, version },
            length,
            hash: u128::from(high) << 64 | u128::from(low),
        })
    }

    /// Whether it is the one that is wanted.
    pub(super) fn verify(&self, wanted: &Self) -> Result<(), Damage> {
        if self.run != wanted.run {
            return Err(Damage::Run);
        }
        if self.tag.cell != wanted.tag.cell {
            return Err(Damage::Cell(self.tag.cell));
        }
        if self.tag.version != wanted.tag.version {
            return Err(Damage::Version {
                found: self.tag.version,
                wanted: wanted.tag.version,
            });
        }
        if self.length != wanted.length {
            return Err(Damage::Length {
                found: self.length,
                wanted: wanted.length,
            });
        }
        if self.hash != wanted.hash {
            return Err(Damage::Payload);
        }
        Ok(())
    }
}
