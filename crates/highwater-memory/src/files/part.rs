//! Parts of files that are what values hold: read whenever those are needed, never written.
//!
//! A part is hashed when it is read first, a window at a time, and each window is checked whenever it is read
//! again: what somebody writes to the file meanwhile is told, and not computed with.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{FileRead, FilesError};
use crate::spill::hash_of;

/// Bytes that are read and hashed at once.
const WINDOW: usize = 1 << 20;

/// A file that is open for several who read it, one at a time.
#[derive(Clone, Debug)]
pub struct SharedFile(Arc<Mutex<Box<dyn FileRead>>>);

impl SharedFile {
    /// Of a file that nobody else reads.
    #[must_use]
    pub fn new(file: Box<dyn FileRead>) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.with(|file| file.path().to_owned())
    }

    /// Its length in bytes, when it was opened.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.with(|file| file.bytes())
    }

    /// Fills the buffer from `offset` on.
    ///
    /// # Errors
    /// As [`FileRead::read_exact_at`].
    pub fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FilesError> {
        self.with(|file| file.read_exact_at(offset, buffer))
    }

    /// Lets go of what of it is in the system's cache.
    pub fn forget(&self) {
        self.with(|file| file.forget());
    }

    fn with<R>(&self, look: impl FnOnce(&mut dyn FileRead) -> R) -> R {
        look(&mut **self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Some bytes of a file.
#[derive(Debug)]
pub struct FilePart {
    file: SharedFile,
    at: u64,
    bytes: u64,
    /// Of each window; none before it was read first.
    hashes: OnceLock<Box<[u128]>>,
}

/// Why a part of a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The file could not be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// It is not what it was when it was read first.
    #[error("{}: the file was changed after it was opened, at byte {at} or later", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Where what was read starts.
        at: u64,
    },
}

impl FilePart {
    /// `bytes` of a file, from `at` on. Nothing is read yet.
    #[must_use]
    pub fn new(file: SharedFile, at: u64, bytes: u64) -> Self {
        Self {
            file,
            at,
            bytes,
            hashes: OnceLock::new(),
        }
    }

    /// How many bytes it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads it all, without keeping it: later it must be the same.
    ///
    /// # Errors
    /// [`PartError`].
    pub fn look(&self) -> Result<(), PartError> {
        let mut window = vec![0; WINDOW.min(self.bytes as usize)];
        let starts = (0..self.bytes).step_by(WINDOW);
        let mut lengths = starts.map(|at| (self.bytes - at).min(WINDOW as u64) as usize);
        self.visit(|seen| lengths.try_for_each(|bytes| self.next(&mut window[..bytes], seen)))
    }

    /// Reads it all.
    ///
    /// # Errors
    /// [`PartError`]. What is in `to` means nothing then.
    ///
    /// # Panics
    /// If `to` is shorter than the part.
    pub fn read(&self, to: &mut [u8]) -> Result<(), PartError> {
        let mut windows = to[..self.bytes as usize].chunks_mut(WINDOW);
        self.visit(|seen| windows.try_for_each(|window| self.next(window, seen)))
    }

    /// Has all windows read, and lets go of the file then. Where all could be, their hashes are known from then on.
    fn visit(
        &self,
        read: impl FnOnce(&mut Vec<u128>) -> Result<(), PartError>,
    ) -> Result<(), PartError> {
        let end = self.at.saturating_add(self.bytes);
        self.file.with(|file| file.read_until(end));
        let mut seen = Vec::new();
        let read = read(&mut seen);
        self.file.forget();
        read?;
        // Those of the first reading stay.
        let _ = self.hashes.set(seen.into());
        Ok(())
    }

    /// Reads the window behind those of which hashes were seen.
    fn next(&self, window: &mut [u8], seen: &mut Vec<u128>) -> Result<(), PartError> {
        let at = self.at + (seen.len() * WINDOW) as u64;
        self.file.read_exact_at(at, window)?;
        let hash = hash_of(window);
        let known = self.hashes.get().map(|known| known[seen.len()]);
        if known.is_some_and(|known| known != hash) {
            let path = self.file.path();
            return Err(PartError::Changed { path, at });
        }
        seen.push(hash);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Fault, FaultKind, Files, MemoryFiles, Operation, ScriptedFiles};
    use std::path::Path;

    fn write(files: &dyn Files, bytes: &[u8]) {
        let mut file = files.create(Path::new("/w")).unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
    }

    fn open(files: &dyn Files) -> SharedFile {
        SharedFile::new(files.open(Path::new("/w")).unwrap())
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|i| (i * i / 7) as u8).collect()
    }

    #[test]
    fn a_part_is_read_as_often_as_one_likes() {
        let files = MemoryFiles::new();
        let all = bytes(3 * WINDOW + 100);
        write(&files, &all);
        let file = open(&files);
        for (at, count) in [(0, all.len()), (5, 2 * WINDOW), (WINDOW - 3, 17), (9, 0)] {
            let part = FilePart::new(file.clone(), at as u64, count as u64);
            let mut to = vec![0; count];
            part.look().unwrap();
            for _ in 0..2 {
                to.fill(1);
                part.read(&mut to).unwrap();
                assert_eq!(to, all[at..at + count]);
            }
        }
    }

    #[test]
    fn what_somebody_wrote_since_is_told() {
        for place in [0, WINDOW, 2 * WINDOW + 50] {
            for looks_first in [false, true] {
                let files = MemoryFiles::new();
                let mut all = bytes(2 * WINDOW + 100);
                write(&files, &all);
                let part = FilePart::new(open(&files), 0, all.len() as u64);
                let mut to = vec![0; all.len()];
                if looks_first {
                    part.look().unwrap();
                } else {
                    part.read(&mut to).unwrap();
                }
                all[place] ^= 4;
                write(&files, &all);
                let part = FilePart {
                    file: open(&files),
                    ..part
                };
                let error = part.read(&mut to).unwrap_err().to_string();
                let window = place / WINDOW * WINDOW;
                assert!(error.contains("/w: the file was changed"), "{error}");
                assert!(error.contains(&format!("byte {window} ")), "{error}");
                assert!(part.look().is_err());
            }
        }
    }

    #[test]
    fn a_part_that_failed_is_read_again() {
        let inner = MemoryFiles::new();
        let all = bytes(2 * WINDOW);
        write(&inner, &all);
        let inner: Arc<dyn Files> = Arc::new(inner);
        // Call 0 opens the file, the next two read what they are to be.
        for (at, kind) in [
            (1, FaultKind::InputOutput),
            (2, FaultKind::InputOutput),
            (4, FaultKind::InputOutput),
            (4, FaultKind::Short),
            (3, FaultKind::Interruption),
        ] {
            let fault = Fault {
                at,
                persistent: false,
                kind,
            };
            let files = ScriptedFiles::new(Arc::clone(&inner), Some(fault));
            let part = FilePart::new(open(&files), 0, all.len() as u64);
            let mut to = vec![0; all.len()];
            let mut failed = 0;
            for _ in 0..3 {
                match part.read(&mut to) {
                    Ok(()) => assert_eq!(to, all),
                    Err(PartError::Files(error)) => {
                        assert_eq!(error.operation, Operation::Read);
                        failed += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(failed, u64::from(kind == FaultKind::InputOutput), "{at}");
        }
    }

    #[test]
    fn a_part_that_ends_behind_the_file_is_an_error() {
        let files = MemoryFiles::new();
        write(&files, &bytes(100));
        let part = FilePart::new(open(&files), 10, 91);
        let error = part.read(&mut [0; 91]).unwrap_err();
        assert!(matches!(error, PartError::Files(_)), "{error}");
        assert!(part.look().is_err());
    }
}
