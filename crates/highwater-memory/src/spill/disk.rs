//! The file under a spill file: positioned transfers and nothing else, so that tests can script them.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, fallocate, openat};
use rustix::io::{Errno, preadv, pwritev};

use super::SpillError;

/// Positioned transfers of several buffers at once. A transfer may be short.
pub trait Disk: Send + Sync + Debug {
    /// Writes some of the buffers' bytes, from the first on.
    ///
    /// # Errors
    /// As the system says.
    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Reads into some of the buffers' bytes, from the first on; 0 at the end of the file.
    ///
    /// # Errors
    /// As the system says.
    fn read_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
}

/// A file without a name, with its space reserved.
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    direct: bool,
}

impl SpillFile {
    /// Makes one of `bytes` in a folder, past the page cache where the file system can do that.
    ///
    /// # Errors
    /// [`SpillError::Create`] where the folder cannot hold it: no such folder, no space left.
    pub fn create(folder: &Path, bytes: u64) -> Result<Self, SpillError> {
        let failed = |error: Errno| SpillError::Create {
            folder: folder.to_owned(),
            bytes,
            source: error.into(),
        };
        let (file, direct) = match nameless(folder, OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(Errno::INVAL) => (nameless(folder, OFlags::empty()).map_err(failed)?, false),
            Err(error) => return Err(failed(error)),
        };
        fallocate(&file, FallocateFlags::empty(), 0, bytes.max(1)).map_err(failed)?;
        Ok(Self { file, direct })
    }

    /// Whether transfers go past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }
}

/// Opens a file that has no name; where the file system knows no such files, one whose name is
/// removed at once.
fn nameless(folder: &Path, more: OFlags) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | more;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(CWD, folder, flags | OFlags::TMPFILE, mode) {
        Ok(file) => return Ok(file.into()),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
        Err(error) => return Err(error),
    }
    let path = folder.join(format!(".highwater-spill-{}", std::process::id()));
    match openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
        Ok(file) => {
            rustix::fs::unlink(&path)?;
            Ok(file.into())
        }
        // Refusing direct transfers leaves the new file behind.
        Err(Errno::INVAL) => {
            let _ = rustix::fs::unlink(&path);
            Err(Errno::INVAL)
        }
        Err(error) => Err(error),
    }
}

impl Disk for SpillFile {
    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(pwritev(&self.file, parts, offset)?)
    }

    fn read_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(preadv(&self.file, parts, offset)?)
    }
}
