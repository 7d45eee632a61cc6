//! The one way to disk: a small trait, so that tests can make every call of it fail.

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::io;
use std::path::{Path, PathBuf};

mod disk;
pub(crate) mod draft;
pub mod memory;
mod part;
pub mod scripted;

pub use disk::DiskFiles;
pub use draft::{Draft, is_draft, remove_drafts};
pub use memory::MemoryFiles;
pub use part::{FilePart, PartError, SharedFile};
pub use scripted::{Fault, FaultKind, ScriptedFiles};

/// How often in a row a transfer may be interrupted before it is given up.
const PATIENCE: u32 = 1000;

/// Whether an error says that nothing is at a path: nothing lies below a file either.
fn is_nothing(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// A file system, as far as a run needs one.
///
/// What is written is durable after [`FileWrite::sync_all`]; names are durable after
/// [`Files::sync_dir`] of the folder that they are in. Errors name the operation and the path.
pub trait Files: Send + Sync + Debug {
    /// Creates a folder and those above it, where missing.
    ///
    /// # Errors
    /// As the system says.
    fn create_dir_all(&self, path: &Path) -> Result<(), FilesError>;

    /// Creates a folder.
    ///
    /// # Errors
    /// As the system says; also when there is something at the path, a dangling link too.
    fn create_dir(&self, path: &Path) -> Result<(), FilesError>;

    /// Creates a file for writing.
    ///
    /// # Errors
    /// As the system says; also when there is something at the path, a dangling link too.
    fn create_new(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError>;

    /// Creates a file, or empties the one that is there, for writing.
    ///
    /// # Errors
    /// As the system says.
    fn create(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError>;

    /// Opens a file for writing at its end; creates it where missing.
    ///
    /// # Errors
    /// As the system says.
    fn append(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As the system says.
    fn open(&self, path: &Path) -> Result<Box<dyn FileRead>, FilesError>;

    /// Renames a file or folder at once, so that at each moment either name leads to it; a file
    /// that had the new name is replaced. The error names the old path.
    ///
    /// # Errors
    /// As the system says; also when the new name is that of a folder with something in it.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FilesError>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// As the system says. The names may be lost then.
    fn sync_dir(&self, path: &Path) -> Result<(), FilesError>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the system says.
    fn remove_file(&self, path: &Path) -> Result<(), FilesError>;

    /// Removes a folder that is empty.
    ///
    /// # Errors
    /// As the system says; also when there is something in it.
    fn remove_dir(&self, path: &Path) -> Result<(), FilesError>;

    /// Removes a folder and all that is in it. This does not happen at once.
    ///
    /// # Errors
    /// As the system says.
    fn remove_dir_all(&self, path: &Path) -> Result<(), FilesError>;

    /// What is in a folder, by name. Names that are no UTF-8 are made so.
    ///
    /// # Errors
    /// As the system says.
    fn list_dir(&self, path: &Path) -> Result<Vec<Entry>, FilesError>;

    /// What is in a folder, sorted, and whether each is a folder itself. Names are as they are: also those that are
    /// not UTF-8.
    ///
    /// # Errors
    /// As the system says.
    fn entries(&self, path: &Path) -> Result<Vec<(OsString, bool)>, FilesError> {
        let entries = self.list_dir(path)?.into_iter();
        Ok(entries
            .map(|entry| (entry.name.into(), entry.is_dir))
            .collect())
    }

    /// The names alone.
    ///
    /// # Errors
    /// As the system says.
    fn names(&self, path: &Path) -> Result<Vec<OsString>, FilesError> {
        let entries = self.entries(path)?.into_iter();
        Ok(entries.map(|(name, _)| name).collect())
    }

    /// What is at a path; none where there is nothing, as below a file.
    ///
    /// # Errors
    /// As the system says.
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>, FilesError>;

    /// Where a path leads if it is a link, even if nothing is there; otherwise the path itself.
    fn behind_links(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

/// A file that is being written, from front to back.
pub trait FileWrite: Send + Debug {
    /// Where the file is.
    fn path(&self) -> &Path;

    /// Writes some of `bytes`, from the first on, and says how many.
    ///
    /// # Errors
    /// As the system says, interruptions too.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, FilesError>;

    /// Makes all that was written durable. After an error here the file is lost and must be written
    /// anew: a second call would not tell.
    ///
    /// # Errors
    /// As the system says, and always after an earlier error.
    fn sync_all(&mut self) -> Result<(), FilesError>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As the system says. Some of them may have been written then.
    fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), FilesError> {
        while !bytes.is_empty() {
            match patiently(|| self.write(bytes)) {
                Ok(0) => {
                    let zero = io::ErrorKind::WriteZero;
                    return Err(FilesError::new(Operation::Write, self.path(), zero));
                }
                Ok(written) => bytes = &bytes[written..],
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A file that is being read.
pub trait FileRead: Send + Debug {
    /// Where the file is.
    fn path(&self) -> &Path;

    /// The file's length in bytes, when it was opened.
    fn bytes(&self) -> u64;

    /// Reads some bytes from `offset` on, and says how many; 0 at or behind the end.
    ///
    /// # Errors
    /// As the system says, interruptions too.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError>;

    /// Says that reading goes on up to this place and no further, until [`FileRead::forget`].
    fn read_until(&mut self, _end: u64) {}

    /// Lets go of what of the file is in the system's cache because it was read here.
    fn forget(&mut self) {}

    /// Fills the buffer from `offset` on.
    ///
    /// # Errors
    /// As the system says, and when the file ends before.
    fn read_exact_at(&mut self, mut offset: u64, mut buffer: &mut [u8]) -> Result<(), FilesError> {
        while !buffer.is_empty() {
            match patiently(|| self.read_at(offset, buffer)) {
                Ok(0) => {
                    let end = io::ErrorKind::UnexpectedEof;
                    return Err(FilesError::new(Operation::Read, self.path(), end));
                }
                Ok(read) => {
                    offset += read as u64;
                    buffer = &mut buffer[read..];
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Calls again what a signal came in between of, so often.
fn patiently<T>(mut call: impl FnMut() -> Result<T, FilesError>) -> Result<T, FilesError> {
    for _ in 1..PATIENCE {
        match call() {
            Err(error) if error.is_interruption() => {}
            other => return other,
        }
    }
    call()
}

/// Reads a file from front to back through the standard library's trait. Not buffered.
#[derive(Debug)]
pub struct Sequential {
    file: Box<dyn FileRead>,
    offset: u64,
}

impl Sequential {
    /// Starts at the first byte.
    pub fn new(file: Box<dyn FileRead>) -> Self {
        Self { file, offset: 0 }
    }
}

impl io::Read for Sequential {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = patiently(|| self.file.read_at(self.offset, buffer));
        let read = read.map_err(|error| {
            if error.is_interruption() {
                // Who reads through this trait would try again for ever.
                io::Error::other(error)
            } else {
                error.into()
            }
        })?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Something in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name, without the folder's.
    pub name: String,
    /// Whether it is a folder itself.
    pub is_dir: bool,
}

/// What there is at a path. Links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its length in bytes, for a file.
    pub bytes: u64,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// Whether it is a regular file: not a folder, a pipe, a socket or a device.
    pub is_file: bool,
    /// When it was changed last, its contents or what the system notes of it, in nanoseconds since 1970.
    pub changed: Option<i128>,
    /// The numbers of its device and of its place there: the same for no other file or folder.
    pub id: Option<(u64, u64)>,
}

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}", path.display())]
pub struct FilesError {
    /// What was tried.
    pub operation: Operation,
    /// On what.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

impl FilesError {
    pub(crate) fn new(operation: Operation, path: &Path, source: impl Into<io::Error>) -> Self {
        Self {
            operation,
            path: draft::given(path),
            source: source.into(),
        }
    }

    /// Whether there is no space left, on the device or under the user's quota.
    pub fn is_disk_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }

    /// Whether there is nothing at the path.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether there is something at the path already.
    pub fn is_already_there(&self) -> bool {
        self.source.kind() == io::ErrorKind::AlreadyExists
    }

    /// Whether links led on to each other without an end.
    pub fn is_link_loop(&self) -> bool {
        self.source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
    }

    /// Whether a signal came in between: the operation has done nothing and can be tried again.
    pub fn is_interruption(&self) -> bool {
        self.source.kind() == io::ErrorKind::Interrupted
    }
}

impl From<FilesError> for io::Error {
    fn from(error: FilesError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

/// What was tried on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// To create a folder.
    CreateDir,
    /// To create a file.
    Create,
    /// To open a file for writing at its end.
    Append,
    /// To open a file for reading.
    Open,
    /// To read from a file.
    Read,
    /// To write to a file.
    Write,
    /// To make a file's contents durable.
    Sync,
    /// To make a folder's names durable.
    SyncDir,
    /// To rename a file or folder.
    Rename,
    /// To remove a file or folder.
    Remove,
    /// To list a folder.
    List,
    /// To ask what is there.
    Inspect,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::CreateDir => "create the folder",
            Self::Create => "create",
            Self::Append | Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "bring to disk",
            Self::SyncDir => "bring to disk the folder",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::List => "list",
            Self::Inspect => "access",
        })
    }
}
