//! For tests: a file system in memory that can lose power.
//!
//! Each file and folder has what is live, and what is durable since it was last synced. Losing power
//! keeps what is durable, and of all that happened since any part: a seed decides which names were
//! changed, which 512-byte sectors of files were written, and how long the files are. That is what
//! POSIX permits, and worse than most real file systems.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod image;

use image::{Change, Image, Node};

use super::{Entry, FileRead, FileWrite, Files, FilesError, Metadata, Operation, is_nothing};

/// A file system in memory, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    image: Arc<Mutex<Image>>,
}

impl MemoryFiles {
    /// An empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is there after the power was lost and came back. This file system stays as it is.
    #[must_use]
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let mut image = self.lock().clone();
        image.lose_power(seed);
        Self {
            image: Arc::new(Mutex::new(image)),
        }
    }

    /// Flips one bit of a file, live and durable.
    ///
    /// # Errors
    /// When there is no such file or byte.
    pub fn flip_bit(&self, path: &Path, byte: u64, bit: u8) -> io::Result<()> {
        let mut image = self.lock();
        let (live, durable) = image.file(path)?;
        for bytes in [live, durable] {
            *bytes
                .get_mut(byte as usize)
                .ok_or(ErrorKind::UnexpectedEof)? ^= 1 << bit;
        }
        Ok(())
    }

    /// Cuts a file to at most so many bytes, live and durable.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let mut image = self.lock();
        let (live, durable) = image.file(path)?;
        live.truncate(bytes as usize);
        durable.truncate(bytes as usize);
        Ok(())
    }

    /// A copy that shares nothing with this one.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            image: Arc::new(Mutex::new(self.lock().clone())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Image> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        operation: Operation,
        path: &Path,
        body: impl FnOnce(&mut Image) -> io::Result<T>,
    ) -> Result<T, FilesError> {
        body(&mut self.lock()).map_err(|error| FilesError::new(operation, path, error))
    }
}

impl Files for MemoryFiles {
    fn create_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::CreateDir, path, |image| {
            image.create_dir_all(path)
        })
    }

    fn create_dir(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::CreateDir, path, |image| {
            image.check_unused(path)?;
            let (dir, _) = image.parent(path)?;
            image.names(dir)?;
            image.create_dir_all(path)
        })
    }

    fn create_new(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        self.with(Operation::Create, path, |image| image.check_unused(path))?;
        self.create(path)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let node = self.with(Operation::Create, path, |image| {
            let node = image.open_or_create(path)?;
            image.contents(node)?.0.clear();
            Ok(node)
        })?;
        Ok(Box::new(Handle {
            files: self.clone(),
            path: path.into(),
            node,
            bytes: 0,
        }))
    }

    fn append(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let node = self.with(Operation::Append, path, |image| image.open_or_create(path))?;
        Ok(Box::new(Handle {
            files: self.clone(),
            path: path.into(),
            node,
            bytes: 0,
        }))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn FileRead>, FilesError> {
        let (node, bytes) = self.with(Operation::Open, path, |image| {
            let node = image.find(path)?;
            Ok((node, image.contents(node)?.0.len() as u64))
        })?;
        Ok(Box::new(Handle {
            files: self.clone(),
            path: path.into(),
            node,
            bytes,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FilesError> {
        self.with(Operation::Rename, from, |image| image.rename(from, to))
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::SyncDir, path, |image| {
            let node = image.find(path)?;
            match &mut image.nodes[node] {
                Node::Dir {
                    live,
                    durable,
                    since,
                } => {
                    durable.clone_from(live);
                    since.clear();
                    Ok(())
                }
                Node::File { .. } => Err(ErrorKind::NotADirectory.into()),
            }
        })
    }

    fn remove_file(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::Remove, path, |image| {
            image.file(path)?;
            let (dir, name) = image.parent(path)?;
            image.change(dir, Change::Remove(name.into()));
            Ok(())
        })
    }

    fn remove_dir(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::Remove, path, |image| {
            if !image.names(image.find(path)?)?.is_empty() {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            let (dir, name) = image.parent(path)?;
            image.change(dir, Change::Remove(name.into()));
            Ok(())
        })
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        self.with(Operation::Remove, path, |image| {
            let node = image.find(path)?;
            image.names(node)?;
            let (dir, name) = image.parent(path)?;
            image.empty(node);
            image.change(dir, Change::Remove(name.into()));
            Ok(())
        })
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<Entry>, FilesError> {
        self.with(Operation::List, path, |image| {
            let names = image.names(image.find(path)?)?;
            let is_dir = |node| image.names(node).is_ok();
            let entries = names.iter();
            Ok(entries
                .map(|(name, &node)| Entry {
                    name: name.clone(),
                    is_dir: is_dir(node),
                })
                .collect())
        })
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>, FilesError> {
        self.with(Operation::Inspect, path, |image| match image.find(path) {
            Ok(node) => Ok(Some(match &image.nodes[node] {
                Node::File { live, .. } => Metadata {
                    bytes: live.len() as u64,
                    is_dir: false,
                    is_file: true,
                    changed: None,
                    id: None,
                },
                Node::Dir { .. } => Metadata {
                    bytes: 0,
                    is_dir: true,
                    is_file: false,
                    changed: None,
                    id: None,
                },
            })),
            Err(error) if is_nothing(error.kind()) => Ok(None),
            Err(error) => Err(error),
        })
    }
}

/// An open file, for reading or for writing at its end.
#[derive(Debug)]
struct Handle {
    files: MemoryFiles,
    path: PathBuf,
    node: usize,
    bytes: u64,
}

impl FileWrite for Handle {
    fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, FilesError> {
        self.files.with(Operation::Write, &self.path, |image| {
            image.contents(self.node)?.0.extend_from_slice(bytes);
            Ok(bytes.len())
        })
    }

    fn sync_all(&mut self) -> Result<(), FilesError> {
        self.files.with(Operation::Sync, &self.path, |image| {
            let (live, durable) = image.contents(self.node)?;
            durable.clone_from(live);
            Ok(())
        })
    }
}

impl FileRead for Handle {
    fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError> {
        self.files.with(Operation::Read, &self.path, |image| {
            let (live, _) = image.contents(self.node)?;
            let rest = live.get(offset as usize..).unwrap_or(&[]);
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })
    }
}

#[cfg(test)]
mod tests;
