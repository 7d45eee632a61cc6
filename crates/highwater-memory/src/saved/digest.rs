//! What contents are known by: their length and their hash.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::{Files, FilesError};

/// Files are read in pieces of so many bytes.
const PIECE: u64 = 64 << 10;

/// The length and the hash of some contents: the same for no others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// How many bytes they have.
    pub bytes: u64,
    /// Their BLAKE3 hash, in 64 hexadecimal digits.
    pub blake3: String,
}

/// Takes contents from front to back.
#[derive(Debug, Default)]
pub struct Digester {
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Digest {
    /// That of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut digester = Digester::default();
        digester.update(bytes);
        digester.finish()
    }

    /// That of a file, read through a buffer of 64 KiB.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn of_file(files: &dyn Files, path: &Path) -> Result<Self, FilesError> {
        let mut file = files.open(path)?;
        let (mut digester, mut buffer) = (Digester::default(), vec![0; PIECE as usize]);
        while digester.bytes < file.bytes() {
            let len = (file.bytes() - digester.bytes).min(PIECE) as usize;
            file.read_exact_at(digester.bytes, &mut buffer[..len])?;
            digester.update(&buffer[..len]);
        }
        Ok(digester.finish())
    }
}

impl Digester {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// That of all that was taken.
    pub fn finish(&self) -> Digest {
        Digest {
            bytes: self.bytes,
            blake3: self.hasher.finalize().to_hex().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::MemoryFiles;

    #[test]
    fn a_file_has_the_digest_of_its_bytes() {
        let (files, path) = (MemoryFiles::new(), Path::new("/file"));
        for len in [0, 1, PIECE as usize, 3 * PIECE as usize + 7] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * i) as u8).collect();
            files.create(path).unwrap().write_all(&bytes).unwrap();
            let found = Digest::of_file(&files, path).unwrap();
            assert_eq!(found, Digest::of(&bytes));
            assert_eq!(found.bytes, len as u64);
            assert_eq!(found.blake3, blake3::hash(&bytes).to_hex().as_str());
        }
    }
}
