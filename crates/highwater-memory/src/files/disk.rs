//! The real file system, without leaving anything in the page cache.
//!
//! In a memory control group the page cache of what a process reads and writes counts as its own
//! memory. So writers send what they wrote to disk every few MiB and drop it from the cache, and
//! readers read ahead by little and drop what they have read: one of each holds at most 16 MiB between
//! them.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::draft::parent;
use super::{Entry, FileRead, FileWrite, Files, FilesError, Metadata, Operation, is_nothing};

/// So many bytes are written before they are sent on their way to disk, without waiting.
const WRITE_PIECE: u64 = 2 << 20;
/// So many bytes are written before waiting until they are on disk.
const WRITE_WINDOW: u64 = 8 << 20;
/// So many bytes are read before they are dropped from the cache.
const READ_WINDOW: u64 = 4 << 20;
/// So many bytes are read ahead, at most, when a file is read from front to back. The system's own
/// reading ahead knows no bound but the device's.
const READ_AHEAD: u64 = 2 << 20;
/// Ranges to drop start at a multiple of this, the largest page size in use.
const PAGE: u64 = 64 << 10;
/// So many links are followed, as Linux does.
const LINKS_MAX: usize = 40;

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

/// Names the operation and the path of a failure.
trait Named<T> {
    fn named(self, operation: Operation, path: &Path) -> Result<T, FilesError>;
}

impl<T, E: Into<std::io::Error>> Named<T> for Result<T, E> {
    fn named(self, operation: Operation, path: &Path) -> Result<T, FilesError> {
        self.map_err(|error| FilesError::new(operation, path, error))
    }
}

impl Files for DiskFiles {
    fn create_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        fs::create_dir_all(path).named(Operation::CreateDir, path)
    }

    fn create_dir(&self, path: &Path) -> Result<(), FilesError> {
        fs::create_dir(path).named(Operation::CreateDir, path)
    }

    fn create_new(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        let file = File::create_new(path).named(Operation::Create, path)?;
        Ok(Box::new(DiskWriter::new(file, path, 0)))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        check_written(path).named(Operation::Create, path)?;
        let file = File::create(path).named(Operation::Create, path)?;
        Ok(Box::new(DiskWriter::new(file, path, 0)))
    }

    fn append(&self, path: &Path) -> Result<Box<dyn FileWrite>, FilesError> {
        check_written(path).named(Operation::Append, path)?;
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.named(Operation::Append, path)?;
        let end = file.metadata().named(Operation::Append, path)?.len();
        Ok(Box::new(DiskWriter::new(file, path, end)))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn FileRead>, FilesError> {
        let (file, bytes) = open_regular(path).named(Operation::Open, path)?;
        Ok(Box::new(DiskReader::new(file, path, bytes)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FilesError> {
        fs::rename(from, to).named(Operation::Rename, from)
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FilesError> {
        File::open(path)
            .and_then(|dir| dir.sync_all())
            .named(Operation::SyncDir, path)
    }

    fn remove_file(&self, path: &Path) -> Result<(), FilesError> {
        fs::remove_file(path).named(Operation::Remove, path)
    }

    fn remove_dir(&self, path: &Path) -> Result<(), FilesError> {
        fs::remove_dir(path).named(Operation::Remove, path)
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), FilesError> {
        fs::remove_dir_all(path).named(Operation::Remove, path)
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<Entry>, FilesError> {
        let entries = self.entries(path)?.into_iter();
        let mut entries: Vec<_> = entries
            .map(|(name, is_dir)| Entry {
                name: name.to_string_lossy().into_owned(),
                is_dir,
            })
            .collect();
        entries.sort();
        Ok(entries)
    }

    fn entries(&self, path: &Path) -> Result<Vec<(OsString, bool)>, FilesError> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).named(Operation::List, path)? {
            let entry = entry.named(Operation::List, path)?;
            let kind = entry.file_type().named(Operation::List, path)?;
            entries.push((entry.file_name(), kind.is_dir()));
        }
        entries.sort();
        Ok(entries)
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>, FilesError> {
        match fs::metadata(path) {
            Ok(found) => Ok(Some(Metadata {
                bytes: found.len(),
                is_dir: found.is_dir(),
                is_file: found.is_file(),
                changed: Some(
                    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec()),
                ),
                id: Some((found.dev(), found.ino())),
            })),
            Err(error) if is_nothing(error.kind()) => Ok(None),
            Err(error) => Err(FilesError::new(Operation::Inspect, path, error)),
        }
    }

    fn behind_links(&self, path: &Path) -> PathBuf {
        let mut behind = path.to_owned();
        for _ in 0..LINKS_MAX {
            let Ok(next) = fs::read_link(&behind) else {
                break;
            };
            behind = parent(&behind).join(next);
        }
        behind
    }
}

/// Opens a regular file for reading, and says how long it is. Every file of a user's is opened here.
fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.read(true);
    // A pipe that took the file's place meanwhile is not waited on. Of regular files this changes nothing.
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    check_regular(&fs::metadata(path)?)?;
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    Ok((file, metadata.len()))
}

/// That what is written to is a regular file, or nothing yet, or a device: opening a pipe would wait for a reader.
fn check_written(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => Err(io::Error::new(
            ErrorKind::InvalidInput,
            "it is a pipe; only regular files are written",
        )),
        _ => Ok(()),
    }
}

/// That something is a regular file. Others have no length and no places in them: a pipe would be waited on for ever.
fn check_regular(found: &fs::Metadata) -> io::Result<()> {
    let kind = found.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "no regular file"
    };
    let message = format!("it is {what}; only regular files are read: copy it to a file first");
    Err(io::Error::new(ErrorKind::InvalidInput, message))
}

/// What the system is told about the use of a file.
#[derive(Clone, Copy)]
enum Advice {
    /// Not to read ahead by itself.
    Random,
    /// To read a range, without waiting for it.
    ReadAhead,
    /// To send a range on its way to disk, and to drop what is there already from the cache.
    Drop,
}

/// Gives advice on the bytes from `start` to `end`; without an end, to the file's. Some file systems do
/// not take it: the cache is then theirs to bound.
fn advise(file: &File, advice: Advice, start: u64, end: Option<u64>) {
    #[cfg(target_os = "linux")]
    {
        let start = start / PAGE * PAGE;
        let len = end.map(|end| end.saturating_sub(start));
        if len == Some(0) {
            return;
        }
        let advice = match advice {
            Advice::Random => rustix::fs::Advice::Random,
            Advice::ReadAhead => rustix::fs::Advice::WillNeed,
            Advice::Drop => rustix::fs::Advice::DontNeed,
        };
        let len = len.and_then(std::num::NonZeroU64::new);
        let _ = rustix::fs::fadvise(file, start, len, advice);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, advice, start, end, PAGE);
}

#[derive(Debug)]
struct DiskWriter {
    file: File,
    path: PathBuf,
    /// How far the file is written, sent on its way, and on disk, in bytes.
    written: u64,
    sent: u64,
    durable: u64,
    /// Whether bringing it to disk has failed once.
    failed: bool,
}

impl DiskWriter {
    fn new(file: File, path: &Path, end: u64) -> Self {
        Self {
            file,
            path: path.into(),
            written: end,
            sent: end,
            durable: end,
            failed: false,
        }
    }

    /// Waits until all is on disk, and drops it from the cache.
    fn flush(&mut self, sync: impl FnOnce(&File) -> std::io::Result<()>) -> Result<(), FilesError> {
        if self.failed {
            let again = std::io::Error::other("an earlier attempt failed");
            return Err(FilesError::new(Operation::Sync, &self.path, again));
        }
        if let Err(error) = sync(&self.file) {
            self.failed = true;
            return Err(FilesError::new(Operation::Sync, &self.path, error));
        }
        advise(&self.file, Advice::Drop, self.durable, None);
        (self.sent, self.durable) = (self.written, self.written);
        Ok(())
    }
}

impl FileWrite for DiskWriter {
    fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, FilesError> {
        if self.written - self.durable >= WRITE_WINDOW {
            self.flush(File::sync_data)?;
        }
        if self.written - self.sent >= WRITE_PIECE {
            advise(&self.file, Advice::Drop, self.durable, Some(self.written));
            self.sent = self.written;
        }
        let room = WRITE_PIECE - (self.written - self.sent);
        let piece = &bytes[..bytes.len().min(room as usize)];
        let written = self.file.write(piece).named(Operation::Write, &self.path)?;
        self.written += written as u64;
        Ok(written)
    }

    fn sync_all(&mut self) -> Result<(), FilesError> {
        self.flush(File::sync_all)
    }
}

#[derive(Debug)]
struct DiskReader {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// Where the last read ended, and how far was read ahead from there.
    end: u64,
    ahead: u64,
    /// Nothing is read ahead from here on.
    until: u64,
    /// How many bytes were read, and from where to where they and those read ahead are, since the last were dropped.
    read: u64,
    touched: Option<(u64, u64)>,
}

impl DiskReader {
    fn new(file: File, path: &Path, bytes: u64) -> Self {
        advise(&file, Advice::Random, 0, None);
        Self {
            file,
            path: path.into(),
            bytes,
            end: 0,
            ahead: 0,
            until: bytes,
            read: 0,
            touched: None,
        }
    }

    /// Reads ahead if the file is read from front to back.
    fn read_ahead(&mut self, start: u64, end: u64) {
        if start != self.end {
            // What was read ahead of a place that reading has left is dropped with the next window, when it has come.
            if self.ahead > self.end {
                self.touch(self.end, self.ahead);
            }
            self.ahead = 0;
        } else if end + READ_AHEAD / 2 > self.ahead {
            let (from, to) = (self.ahead.max(start), (end + READ_AHEAD).min(self.until));
            if from < to {
                advise(&self.file, Advice::ReadAhead, from, Some(to));
                self.ahead = to;
            }
        }
    }

    /// Counts bytes to those that may be in the cache; answers from where to where those are.
    fn touch(&mut self, start: u64, end: u64) -> (u64, u64) {
        let (low, high) = self.touched.unwrap_or((start, end));
        *self.touched.insert((low.min(start), high.max(end)))
    }

    /// Drops from the cache what was read, when it is enough to be worth the call.
    fn drop_behind(&mut self, start: u64, end: u64) {
        let (low, high) = self.touch(start, end);
        self.read += end - start;
        if self.read >= READ_WINDOW {
            advise(&self.file, Advice::Drop, low, Some(high));
            (self.read, self.touched) = (0, None);
        }
    }
}

impl FileRead for DiskReader {
    fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError> {
        let piece = buffer.len().min(READ_AHEAD as usize);
        self.read_ahead(offset, offset.saturating_add(piece as u64).min(self.bytes));
        let read = self.file.read_at(&mut buffer[..piece], offset);
        let read = read.named(Operation::Read, &self.path)?;
        self.end = offset + read as u64;
        self.drop_behind(offset, self.end);
        Ok(read)
    }

    fn forget(&mut self) {
        if let Some((low, high)) = self.touched.take() {
            advise(&self.file, Advice::Drop, low, Some(high));
        }
        if self.ahead > self.end {
            // What is on its way stays: it is dropped the next time, when it has come.
            self.touch(self.end, self.ahead);
        }
        (self.ahead, self.read, self.until) = (0, 0, self.bytes);
    }

    fn read_until(&mut self, end: u64) {
        self.until = end.min(self.bytes);
    }
}

impl Drop for DiskReader {
    fn drop(&mut self) {
        // What was read ahead goes too.
        advise(&self.file, Advice::Drop, 0, None);
    }
}

#[cfg(test)]
mod tests;
