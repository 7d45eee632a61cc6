//! Finding and reading states.

use std::path::{Path, PathBuf};

use super::manifest::{self, FileEntry, MANIFEST_BYTES};
use super::{BUFFER, MANIFEST, SavedError, number};
use crate::files::{FileRead, Files, FilesError};

/// A complete state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    path: PathBuf,
    name: String,
    files: Vec<FileEntry>,
}

/// What [`latest_complete`] has found.
#[derive(Debug, Default)]
pub struct Found {
    /// The newest complete state, if there is any.
    pub saved: Option<Saved>,
    /// Newer ones that are not complete or cannot be read. If there are some, and no complete one,
    /// then a run was here before: it would be wrong to start anew without a word. A run that goes on
    /// from the state that was found will come to the numbers of these again: let it remove them
    /// first, with [`remove_newer`](super::remove_newer).
    pub skipped: Vec<Skipped>,
}

/// A state that was not taken.
#[derive(Debug)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why it was not taken; names the file.
    pub why: SavedError,
}

impl Saved {
    pub(super) fn new(path: PathBuf, name: String, files: Vec<FileEntry>) -> Self {
        Self { path, name, files }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name, such as `step-000010`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number that ends its name.
    pub fn number(&self) -> u64 {
        number(&self.name).unwrap_or(0)
    }

    /// Its files, in the order in which they were written.
    pub fn files(&self) -> &[FileEntry] {
        &self.files
    }

    /// Opens a file of the state for reading from front to back, with a second check of its contents
    /// at the end.
    ///
    /// # Errors
    /// [`SavedError::Missing`] when the state has no such file; when it cannot be opened or has
    /// another size than it was written with.
    pub fn read(&self, files: &dyn Files, name: &str) -> Result<SavedReader, SavedError> {
        let path = self.path.join(name);
        match self.files.iter().find(|file| file.name == name) {
            Some(entry) => SavedReader::open(files, &path, entry),
            None => Err(SavedError::Missing(path)),
        }
    }
}

/// A file of a state that is being read, from front to back.
#[derive(Debug)]
pub struct SavedReader {
    file: Box<dyn FileRead>,
    offset: u64,
    entry: FileEntry,
    hasher: blake3::Hasher,
}

impl SavedReader {
    fn open(files: &dyn Files, path: &Path, entry: &FileEntry) -> Result<Self, SavedError> {
        let file = files
            .open(path)
            .map_err(|error| missing(error, SavedError::Missing))?;
        if file.bytes() != entry.bytes {
            let (expected, found) = (entry.bytes, file.bytes());
            return Err(SavedError::Size {
                path: path.into(),
                expected,
                found,
            });
        }
        Ok(Self {
            file,
            offset: 0,
            entry: entry.clone(),
            hasher: blake3::Hasher::new(),
        })
    }

    /// The bytes that are still to be read.
    pub fn remaining(&self) -> u64 {
        self.entry.bytes - self.offset
    }

    /// Fills the buffer with the next bytes. Trust them only after [`SavedReader::finish`].
    ///
    /// # Errors
    /// When they cannot be read, or the file ends before.
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), SavedError> {
        for piece in buffer.chunks_mut(BUFFER) {
            self.file.read_exact_at(self.offset, piece)?;
            self.offset += piece.len() as u64;
            self.hasher.update(piece);
        }
        Ok(())
    }

    /// Reads what remains, and checks that all contents are as they were written.
    ///
    /// # Errors
    /// [`SavedError::Hash`] if they are not; when they cannot be read.
    pub fn finish(mut self) -> Result<(), SavedError> {
        let mut buffer = vec![0; self.remaining().min(BUFFER as u64) as usize];
        while self.remaining() > 0 {
            let len = self.remaining().min(BUFFER as u64) as usize;
            self.read_exact(&mut buffer[..len])?;
        }
        if self.hasher.finalize().to_hex().as_str() == self.entry.blake3 {
            Ok(())
        } else {
            Err(SavedError::Hash(self.file.path().into()))
        }
    }
}

/// The newest state in `dir` of which every byte is as it was written. Those that are not complete or
/// cannot be read are skipped, and reported. A missing folder has no states.
///
/// # Errors
/// When the folder cannot be listed.
pub fn latest_complete(files: &dyn Files, dir: &Path) -> Result<Found, SavedError> {
    let mut found = Found::default();
    if files.metadata(dir)?.is_none() {
        return Ok(found);
    }
    for name in names_newest_first(files, dir)? {
        match verify(files, &dir.join(&name)) {
            Ok(saved) => {
                found.saved = Some(saved);
                break;
            }
            Err(why) => found.skipped.push(Skipped { name, why }),
        }
    }
    Ok(found)
}

/// Checks every byte of the state in the folder `path`, reading through a buffer of 1 MiB.
///
/// # Errors
/// What is wrong with it, with the file named.
pub fn verify(files: &dyn Files, path: &Path) -> Result<Saved, SavedError> {
    let saved = check_sizes(files, path)?;
    for entry in &saved.files {
        SavedReader::open(files, &path.join(&entry.name), entry)?.finish()?;
    }
    Ok(saved)
}

/// The name of the state that the manifest in a folder is of, and its files.
pub(super) fn read_manifest(
    files: &dyn Files,
    path: &Path,
) -> Result<(String, Vec<FileEntry>), SavedError> {
    let manifest = path.join(MANIFEST);
    let mut file = files
        .open(&manifest)
        .map_err(|error| missing(error, SavedError::NoManifest))?;
    if file.bytes() > MANIFEST_BYTES {
        return Err(SavedError::Manifest {
            path: manifest,
            problem: format!("{} bytes are too many", file.bytes()),
        });
    }
    let mut bytes = vec![0; file.bytes() as usize];
    file.read_exact_at(0, &mut bytes)?;
    manifest::decode(path, &bytes)
}

/// Whether a folder has the manifest of a state, whole or damaged, which is not a copy of one under another name.
///
/// # Errors
/// When a file operation fails.
pub fn is_state(files: &dyn Files, path: &Path) -> Result<bool, FilesError> {
    if files.metadata(&path.join(MANIFEST))?.is_none() {
        return Ok(false);
    }
    let read = read_manifest(files, path);
    Ok(read.map_or(true, |(of, _)| {
        path.file_name().is_some_and(|name| name == of.as_str())
    }))
}

/// Checks the manifest, and that all files are there with the right sizes.
pub(super) fn check_sizes(files: &dyn Files, path: &Path) -> Result<Saved, SavedError> {
    let (name, entries) = read_manifest(files, path)?;
    if path.file_name().is_none_or(|found| found != name.as_str()) {
        return Err(SavedError::Manifest {
            path: path.join(MANIFEST),
            problem: format!("it belongs to {name}"),
        });
    }
    for entry in &entries {
        let path = path.join(&entry.name);
        match files.metadata(&path)? {
            Some(found) if !found.is_dir && found.bytes == entry.bytes => {}
            Some(found) if !found.is_dir => {
                let (expected, found) = (entry.bytes, found.bytes);
                return Err(SavedError::Size {
                    path,
                    expected,
                    found,
                });
            }
            _ => return Err(SavedError::Missing(path)),
        }
    }
    Ok(Saved::new(path.into(), name, entries))
}

/// The names of all that looks like a state, finished or broken.
pub(super) fn names_newest_first(files: &dyn Files, dir: &Path) -> Result<Vec<String>, FilesError> {
    let entries = files.list_dir(dir)?;
    let mut names: Vec<(u64, String)> = entries
        .into_iter()
        .filter(|entry| entry.is_dir)
        .filter_map(|entry| Some((number(&entry.name)?, entry.name)))
        .collect();
    names.sort();
    Ok(names.into_iter().rev().map(|(_, name)| name).collect())
}

fn missing(error: FilesError, missing: impl FnOnce(PathBuf) -> SavedError) -> SavedError {
    if error.is_not_found() {
        missing(error.path)
    } else {
        error.into()
    }
}
