//! Opening a spill file by the best way that there is here.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::file::{SpillFile, free_bytes};
use super::requests::{Lane, Lanes};
use super::threads::Threads;
use super::{Disk, Spill, SpillError};

/// Payloads in a file.
pub type Store = Spill<Box<dyn Disk>>;

/// Who carries transfers out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The kernel where it lets us and the file is direct, else threads.
    #[default]
    Auto,
    /// The kernel (Linux: `io_uring`), on direct files only.
    Uring,
    /// Threads of ours.
    Threads,
}

/// Makes a spill file of `bytes` in a folder, for the run of this number. Its space is taken at once.
///
/// # Errors
/// [`SpillError::Create`] where the folder cannot hold it: no such folder, not writable, no space left.
pub fn open(folder: &Path, bytes: u64, run: u64) -> Result<Store, SpillError> {
    open_with(folder, bytes, run, Backend::Auto, true)
}

/// The same by a back end of choice, and past the page cache only if `direct`.
///
/// # Errors
/// As [`open`], and where that back end is not to be had.
pub fn open_with(
    folder: &Path,
    bytes: u64,
    run: u64,
    backend: Backend,
    direct: bool,
) -> Result<Store, SpillError> {
    let failed = |source| SpillError::Create {
        folder: folder.to_owned(),
        bytes,
        free_bytes: free_bytes(folder),
        source,
    };
    let file = Arc::new(SpillFile::create(folder, bytes, direct)?);
    let disk = match backend {
        Backend::Auto => rings(&file).or_else(|_| threads(&file)),
        Backend::Uring => rings(&file),
        Backend::Threads => threads(&file),
    };
    Ok(Spill::new(disk.map_err(failed)?, run))
}

fn threads(file: &Arc<SpillFile>) -> io::Result<Box<dyn Disk>> {
    let backend = if file.is_direct() {
        "threads, direct"
    } else {
        "threads, through the page cache"
    };
    lanes(backend, || Threads::start(file))
}

#[cfg(target_os = "linux")]
fn rings(file: &Arc<SpillFile>) -> io::Result<Box<dyn Disk>> {
    if !file.is_direct() {
        let reason = "io_uring is for files that are not in the page cache";
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    lanes("io_uring, direct", || super::uring::Ring::new(file))
}

#[cfg(not(target_os = "linux"))]
fn rings(_: &Arc<SpillFile>) -> io::Result<Box<dyn Disk>> {
    Err(io::ErrorKind::Unsupported.into())
}

fn lanes<L: Lane + 'static>(
    backend: &'static str,
    lane: impl Fn() -> io::Result<L>,
) -> io::Result<Box<dyn Disk>> {
    Ok(Box::new(Lanes {
        write: Mutex::new(lane()?),
        read: Mutex::new(lane()?),
        backend,
    }))
}
