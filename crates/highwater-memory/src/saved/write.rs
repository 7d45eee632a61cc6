//! Writing states, and removing them.

use std::ffi::OsString;
use std::mem::take;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::find::{Saved, check_sizes, names_newest_first, read_manifest, verify};
use super::manifest::{self, FileEntry};
use super::{BUFFER, LATEST, MANIFEST, SavedError, number};
use crate::files::draft::parent;
use crate::files::{Draft, FileWrite, Files, FilesError, is_draft};

/// A state that is being written. Nothing counts before [`SaveWriter::finish`]. One that is dropped
/// earlier removes what it wrote, so that a full disk does not stay full of it; what a process that was
/// killed has left is removed when the next begins.
#[derive(Debug)]
pub struct SaveWriter<'a> {
    files: &'a dyn Files,
    dir: PathBuf,
    name: String,
    draft: Draft<'a>,
    entries: Vec<FileEntry>,
    buffer: Vec<u8>,
    /// The file that is being written.
    open: Option<String>,
    /// Whether a broken state of this name is in the way.
    replaces: bool,
}

impl<'a> SaveWriter<'a> {
    /// Begins a state called `name`, which ends in a number, in the folder `dir`. Removes what earlier
    /// interruptions have left there.
    ///
    /// # Errors
    /// [`SavedError::AlreadySaved`] if there is a complete state of this name (a broken one will be
    /// replaced, but not one that only cannot be read); when a file operation fails.
    pub fn begin(files: &'a dyn Files, dir: &Path, name: &str) -> Result<Self, SavedError> {
        if number(name).is_none() {
            return Err(SavedError::StateName(name.into()));
        }
        create_durably(files, dir)?;
        remove_leftovers(files, dir)?;
        let state = dir.join(name);
        let replaces = files.metadata(&state)?.is_some();
        if replaces {
            match verify(files, &state) {
                Ok(_) => {
                    write_latest(files, dir, name)?;
                    return Err(SavedError::AlreadySaved(state));
                }
                Err(SavedError::Files(error)) => return Err(error.into()),
                Err(_broken) => {}
            }
        }
        Ok(Self {
            files,
            dir: dir.into(),
            name: name.into(),
            draft: Draft::folder(files, &state)?,
            entries: Vec::new(),
            buffer: Vec::with_capacity(BUFFER),
            open: None,
            replaces,
        })
    }

    /// Begins a file of the state. It must be closed before the next begins.
    ///
    /// # Errors
    /// When the name is not plain or was used already, or the file cannot be created.
    pub fn file(&mut self, name: &str) -> Result<SaveFile<'_, 'a>, SavedError> {
        if !manifest::is_file_name(name, &self.entries) {
            return Err(SavedError::FileName(name.into()));
        }
        self.check_closed()?;
        let file = self.files.create_new(&self.draft.path().join(name))?;
        self.open = Some(name.into());
        self.buffer.clear();
        Ok(SaveFile {
            state: self,
            file,
            hasher: blake3::Hasher::new(),
            bytes: 0,
        })
    }

    /// Makes the state durable and visible under its name, and `LATEST` its name.
    ///
    /// # Errors
    /// When a file was not closed, or a file operation fails. The state can be complete all the same,
    /// if only `LATEST` failed: beginning it again will tell.
    pub fn finish(self) -> Result<Saved, SavedError> {
        self.check_closed()?;
        let manifest = manifest::encode(&self.name, &self.entries)?;
        let (folder, state) = (self.draft.path(), self.dir.join(&self.name));
        write_durably(self.files.create_new(&folder.join(MANIFEST))?, &manifest)?;
        self.files.sync_dir(folder)?;
        let broken = (self.replaces)
            .then(|| Draft::of_folder(self.files, &state))
            .transpose()?;
        self.draft.persist()?;
        write_latest(self.files, &self.dir, &self.name)?;
        if let Some(broken) = broken {
            // What was put beside a state that was damaged stays with the one that takes its place.
            let own: Vec<&str> = self.entries.iter().map(|entry| &*entry.name).collect();
            for other in others(self.files, broken.path(), &own)? {
                self.files
                    .rename(&broken.path().join(&other), &state.join(&other))?;
            }
            broken.remove()?;
        }
        Ok(Saved::new(state, self.name, self.entries))
    }

    fn check_closed(&self) -> Result<(), SavedError> {
        self.open
            .clone()
            .map_or(Ok(()), |name| Err(SavedError::Unclosed(name)))
    }
}

/// A file of a state that is being written, from front to back.
#[derive(Debug)]
pub struct SaveFile<'w, 'a> {
    state: &'w mut SaveWriter<'a>,
    file: Box<dyn FileWrite>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl SaveFile<'_, '_> {
    /// Adds `bytes` to the file.
    ///
    /// # Errors
    /// When writing fails: the state cannot be finished then.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), SavedError> {
        while !bytes.is_empty() {
            let room = BUFFER - self.state.buffer.len();
            let (piece, rest) = bytes.split_at(bytes.len().min(room));
            bytes = rest;
            if piece.len() == BUFFER {
                self.put(piece)?;
                continue;
            }
            self.state.buffer.extend_from_slice(piece);
            if self.state.buffer.len() == BUFFER {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Makes the file durable.
    ///
    /// # Errors
    /// When writing fails: the state cannot be finished then.
    pub fn close(mut self) -> Result<(), SavedError> {
        self.flush()?;
        self.file.sync_all()?;
        let name = self.state.open.take().unwrap_or_default();
        let blake3 = self.hasher.finalize().to_hex().to_string();
        self.state.entries.push(FileEntry {
            name,
            bytes: self.bytes,
            blake3,
        });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SavedError> {
        let buffer = take(&mut self.state.buffer);
        let result = self.put(&buffer);
        self.state.buffer = buffer;
        self.state.buffer.clear();
        result
    }

    fn put(&mut self, piece: &[u8]) -> Result<(), SavedError> {
        self.hasher.update(piece);
        self.file.write_all(piece)?;
        self.bytes += piece.len() as u64;
        Ok(())
    }
}

/// Removes all but the newest `keep` states from `dir`, and one called `spared`, and says which. Call it when a new
/// state is finished. Folders that do not look complete, or have files in them that are not of a state, are neither
/// counted nor removed.
///
/// # Errors
/// When a file operation fails. What remains of a removal is removed when the next state begins.
pub fn keep_last(
    files: &dyn Files,
    dir: &Path,
    keep: NonZeroUsize,
    spared: Option<&str>,
) -> Result<Vec<String>, SavedError> {
    let names = names_newest_first(files, dir)?;
    let mut whole = Vec::new();
    for name in names {
        let path = dir.join(&name);
        let Ok(saved) = check_sizes(files, &path) else {
            continue;
        };
        let own: Vec<&str> = saved.files().iter().map(|entry| &*entry.name).collect();
        if others(files, &path, &own)?.is_empty() {
            whole.push(name);
        }
    }
    let mut removed = whole.split_off(whole.len().min(keep.get()));
    removed.retain(|name| Some(&**name) != spared);
    remove(files, dir, &removed)?;
    Ok(removed)
}

/// Removes all states with a number above `last` from `dir`, complete or not, and says which. For a
/// run that goes on from an older state than the newest: it will come to the same numbers again. A state has files
/// called `own`. Folders with other files in them stay, and so do copies of a state under another name.
///
/// # Errors
/// When a file operation fails. What remains of a removal is removed when the next state begins.
pub fn remove_newer(
    files: &dyn Files,
    dir: &Path,
    last: u64,
    own: &[&str],
) -> Result<Vec<String>, SavedError> {
    let mut removed = Vec::new();
    for name in names_newest_first(files, dir)? {
        let (path, is_newer) = (dir.join(&name), number(&name).is_some_and(|n| n > last));
        let is_copy = read_manifest(files, &path).is_ok_and(|(of, _)| of != name);
        if is_newer && !is_copy && others(files, &path, own)?.is_empty() {
            removed.push(name);
        }
    }
    remove(files, dir, &removed)?;
    Ok(removed)
}

/// What lies in a state's folder beside its manifest and its files. Hidden files do not count: desktops and file
/// systems leave some everywhere.
fn others(files: &dyn Files, state: &Path, own: &[&str]) -> Result<Vec<OsString>, FilesError> {
    let is_own = |name: &OsString| {
        let name = name.to_string_lossy();
        name == MANIFEST || own.contains(&&*name) || name.starts_with('.')
    };
    let mut names = files.names(state)?;
    names.retain(|name| !is_own(name));
    Ok(names)
}

fn remove(files: &dyn Files, dir: &Path, names: &[String]) -> Result<(), FilesError> {
    let mut names = names.iter();
    names.try_for_each(|name| Draft::of_folder(files, &dir.join(name))?.remove())
}

/// Replaces a file so that at each instant, and after a power cut, it is either the old or the new.
///
/// # Errors
/// When a file operation fails. The file is then the old or the new one. A process that is killed can leave
/// a [`Draft`] beside it.
pub fn write_atomic(files: &dyn Files, path: &Path, bytes: &[u8]) -> Result<(), FilesError> {
    let (draft, file) = Draft::file(files, path)?;
    write_durably(file, bytes)?;
    draft.persist()
}

/// Gives a file that is whole, and durable, its name, for good.
///
/// # Errors
/// When a file operation fails. The file has one of the names then.
pub fn rename_durably(files: &dyn Files, draft: &Path, path: &Path) -> Result<(), FilesError> {
    files.rename(draft, path)?;
    files.sync_dir(parent(path))
}

fn write_durably(mut file: Box<dyn FileWrite>, bytes: &[u8]) -> Result<(), FilesError> {
    file.write_all(bytes)?;
    file.sync_all()
}

fn write_latest(files: &dyn Files, dir: &Path, name: &str) -> Result<(), FilesError> {
    write_atomic(files, &dir.join(LATEST), format!("{name}\n").as_bytes())
}

/// Removes the drafts that interrupted writing and removing have left.
fn remove_leftovers(files: &dyn Files, dir: &Path) -> Result<(), FilesError> {
    for entry in files.list_dir(dir)? {
        let path = dir.join(&entry.name);
        match (is_draft(&entry.name), entry.is_dir) {
            (true, true) => files.remove_dir_all(&path)?,
            (true, false) => files.remove_file(&path)?,
            (false, _) => {}
        }
    }
    Ok(())
}

/// Creates a folder, and those above it where missing, and makes their names durable.
fn create_durably(files: &dyn Files, dir: &Path) -> Result<(), FilesError> {
    let mut missing = Vec::new();
    for folder in dir
        .ancestors()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        if files.metadata(folder)?.is_some() {
            break;
        }
        missing.push(folder);
    }
    if !missing.is_empty() {
        files.create_dir_all(dir)?;
    }
    missing
        .iter()
        .try_for_each(|folder| files.sync_dir(parent(folder)))
}
