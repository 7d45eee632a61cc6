//! The file under a spill file: without a name, its space reserved, and out of the page cache.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, fallocate, openat, statvfs};
use rustix::io::Errno;

use super::{SpillError, ZEROS};

/// A file without a name, with its space reserved.
#[derive(Debug)]
pub(super) struct SpillFile {
    file: File,
    direct: bool,
}

impl SpillFile {
    /// Makes one of `bytes` in a folder; past the page cache, if so wanted and the file system does that.
    ///
    /// # Errors
    /// [`SpillError::Create`] where the folder cannot hold it: no such folder, no space left.
    pub(super) fn create(folder: &Path, bytes: u64, direct: bool) -> Result<Self, SpillError> {
        let made = if direct {
            match Self::make(folder, bytes, true) {
                // Refused at once, or because blocks here are larger than those of this file.
                Err(Errno::INVAL) => Self::make(folder, bytes, false),
                made => made,
            }
        } else {
            Self::make(folder, bytes, false)
        };
        made.map_err(|error| SpillError::Create {
            folder: folder.to_owned(),
            bytes,
            free_bytes: free_bytes(folder),
            source: error.into(),
        })
    }

    fn make(folder: &Path, bytes: u64, direct: bool) -> Result<Self, Errno> {
        let file = nameless(folder, if direct { DIRECT } else { OFlags::empty() })?;
        reserve(&file, folder, bytes.max(1))?;
        #[cfg(target_os = "linux")]
        if !direct {
            // What is read ahead would stay in the page cache.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        }
        let file = Self { file, direct };
        // Some file systems refuse direct transfers only when it comes to one.
        let first = file.write_at(0, &ZEROS.0);
        first.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(file)
    }

    /// Whether transfers go past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    #[cfg(target_os = "linux")]
    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.file)
    }

    /// Writes some bytes, from the first on.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let done = std::os::unix::fs::FileExt::write_at(&self.file, bytes, offset)?;
        if !self.direct {
            write_back(&self.file, offset, done)?;
            self.forget(offset, done);
        }
        Ok(done)
    }

    /// Reads some bytes, from the first on.
    pub(super) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let done = std::os::unix::fs::FileExt::read_at(&self.file, bytes, offset)?;
        if !self.direct {
            self.forget(offset, done);
        }
        Ok(done)
    }

    /// Has the page cache drop what was transferred. That it does is nothing to rely on, and no error.
    #[cfg(target_os = "linux")]
    fn forget(&self, offset: u64, bytes: usize) {
        use rustix::fs::{Advice, fadvise};
        // A piece of the cache that reaches over the edge of what is to go stays: widen that.
        let start = offset - offset % CACHE_PIECE;
        let end = (offset + bytes as u64).next_multiple_of(CACHE_PIECE);
        let length = std::num::NonZeroU64::new(end - start);
        let _ = fadvise(&self.file, start, length, Advice::DontNeed);
    }

    #[cfg(not(target_os = "linux"))]
    fn forget(&self, _: u64, _: usize) {}
}

/// The largest piece in which the page cache holds a file, in bytes.
#[cfg(target_os = "linux")]
const CACHE_PIECE: u64 = 2 << 20;

/// What has transfers go past the page cache; nothing where there is no such thing.
#[cfg(target_os = "linux")]
const DIRECT: OFlags = OFlags::DIRECT;
#[cfg(not(target_os = "linux"))]
const DIRECT: OFlags = OFlags::empty();

/// Waits until what was written is on the disk, so that the page cache can drop it.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "a call that has no safe form")]
fn write_back(file: &File, offset: u64, bytes: usize) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (offset, bytes) = (offset as libc::off64_t, bytes as libc::off64_t);
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call takes numbers only, and the descriptor is that of an open file.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) } {
        0 => Ok(()),
        _ => file.sync_data(),
    }
}

#[cfg(not(target_os = "linux"))]
fn write_back(_: &File, _: u64, _: usize) -> io::Result<()> {
    Ok(())
}

/// Whether the file system of a folder keeps its files in memory: `tmpfs`, `ramfs`. False where the system
/// does not tell.
#[must_use]
pub fn is_memory(folder: &Path) -> bool {
    const KINDS: [u32; 2] = [0x0102_1994, 0x8584_58f6];
    let kind = rustix::fs::statfs(folder).map(|found| found.f_type as u32);
    cfg!(target_os = "linux") && kind.is_ok_and(|kind| KINDS.contains(&kind))
}

/// The space that is free for this user where the folder is, in bytes.
///
/// Nothing where the system does not tell, as of a folder that is not there.
#[must_use]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    Some(found.f_bavail * found.f_frsize)
}

/// Takes the space on disk; where the file system knows no such thing, makes sure that it is free now.
fn reserve(file: &File, folder: &Path, bytes: u64) -> Result<(), Errno> {
    let reserved = rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes));
    match reserved {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => match free_bytes(folder) {
            Some(free) if free < bytes => Err(Errno::NOSPC),
            _ => rustix::fs::ftruncate(file, bytes),
        },
        done => done,
    }
}

/// How many names this process has given to files.
static NAMES: AtomicU64 = AtomicU64::new(0);

/// Opens a file that has no name; where the file system knows no such files, one whose name is
/// removed at once.
fn nameless(folder: &Path, more: OFlags) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | more;
    let mode = Mode::RUSR | Mode::WUSR;
    #[cfg(target_os = "linux")]
    match openat(CWD, folder, flags | OFlags::TMPFILE, mode) {
        Ok(file) => return Ok(file.into()),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
        Err(error) => return Err(error),
    }
    let process = std::process::id();
    loop {
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".highwater-spill-{process}-{number}"));
        return match openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(file) => {
                rustix::fs::unlink(&path)?;
                Ok(file.into())
            }
            // One that was killed just here left its file.
            Err(Errno::EXIST) => continue,
            // Refusing direct transfers leaves the new file behind.
            Err(Errno::INVAL) => {
                let _ = rustix::fs::unlink(&path);
                Err(Errno::INVAL)
            }
            Err(error) => Err(error),
        };
    }
}
