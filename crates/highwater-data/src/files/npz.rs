//! NumPy's `.npz`: a ZIP archive of `.npy` files, stored or deflated.

use super::npy::read_array;
use crate::{Array, DataError};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use highwater_memory::{DiskFiles, FileRead, Files, FilesError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes of an archive's end record, and the longest comment behind it.
const END: usize = 22;
const COMMENT_MAX: u64 = 65_535;

/// Reads all arrays of an archive as `numpy.savez` and `numpy.savez_compressed` write them, by their names.
///
/// # Errors
/// [`DataError::Files`] for a file that cannot be read; [`DataError::Format`] for one that is no such archive,
/// and for arrays in it that [`read_npy`](crate::read_npy) would not take.
pub fn read_npz(path: impl AsRef<Path>) -> Result<BTreeMap<String, Array>, DataError> {
    read_npz_in(&DiskFiles, path.as_ref())
}

/// As [`read_npz`], through other files than those of the system.
///
/// # Errors
/// As [`read_npz`].
pub fn read_npz_in(files: &dyn Files, path: &Path) -> Result<BTreeMap<String, Array>, DataError> {
    let mut file = files.open(path)?;
    let wrong = |problem: &str| DataError::format(path, problem);
    let directory = directory(file.as_mut()).map_err(|problem| match problem {
        Problem::Files(error) => DataError::Files(error),
        Problem::Format(problem) => wrong(problem),
    })?;
    let mut arrays = BTreeMap::new();
    for member in directory {
        let of_member = |problem: &str| wrong(&format!("{}: {problem}", member.name));
        let bytes = member
            .read(file.as_mut())
            .map_err(|problem| match problem {
                Problem::Files(error) => DataError::Files(error),
                Problem::Format(problem) => of_member(problem),
            })?;
        let path = path.join(&member.name);
        let array = read_array(&mut InMemory { path, bytes })?;
        let name = member.name.strip_suffix(".npy").unwrap_or(&member.name);
        arrays.insert(name.to_owned(), array);
    }
    Ok(arrays)
}

enum Problem {
    Files(FilesError),
    Format(&'static str),
}

impl From<FilesError> for Problem {
    fn from(error: FilesError) -> Self {
        Self::Files(error)
    }
}

/// A file of an archive.
struct Member {
    name: String,
    method: u16,
    crc: u32,
    packed: u64,
    bytes: u64,
    header_at: u64,
}

/// Little-endian numbers of a record.
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }
}

const DAMAGED: Problem = Problem::Format("no ZIP archive, or a damaged one");

/// What the archive's directory lists.
fn directory(file: &mut dyn FileRead) -> Result<Vec<Member>, Problem> {
    let length = file.bytes();
    let tail_at = length.saturating_sub(END as u64 + COMMENT_MAX);
    let mut tail = vec![0; (length - tail_at) as usize];
    file.read_exact_at(tail_at, &mut tail)?;
    let starts = (0..(tail.len() + 1).saturating_sub(END)).rev();
    let end = starts
        .map(|at| &tail[at..])
        .find(|end| end.starts_with(b"PK\x05\x06"));
    let end = Record(end.ok_or(DAMAGED)?);
    let size = end.u32(12).ok_or(DAMAGED)?;
    let at = end.u32(16).ok_or(DAMAGED)?;
    if size == u32::MAX || at == u32::MAX {
        return Err(Problem::Format(
            "an archive whose directory is behind 4 GiB",
        ));
    }
    if u64::from(at) + u64::from(size) > length {
        return Err(DAMAGED);
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(u64::from(at), &mut bytes)?;
    let (mut members, mut rest) = (Vec::new(), &bytes[..]);
    while rest.starts_with(b"PK\x01\x02") {
        let (member, next) = Member::listed(rest).ok_or(DAMAGED)?;
        members.push(member);
        rest = next;
    }
    Ok(members)
}

impl Member {
    /// The first entry of a directory, and what follows it.
    fn listed(entry: &[u8]) -> Option<(Self, &[u8])> {
        let record = Record(entry);
        let name = usize::from(record.u16(28)?);
        let extra = usize::from(record.u16(30)?);
        let end = 46 + name + extra + usize::from(record.u16(32)?);
        let mut member = Self {
            name: String::from_utf8_lossy(entry.get(46..46 + name)?).into_owned(),
            method: record.u16(10)?,
            crc: record.u32(16)?,
            packed: u64::from(record.u32(20)?),
            bytes: u64::from(record.u32(24)?),
            header_at: u64::from(record.u32(42)?),
        };
        member.widen(entry.get(46 + name..46 + name + extra)?)?;
        Some((member, entry.get(end..)?))
    }

    /// Takes what 32 bits could not hold from the field that is for that.
    fn widen(&mut self, mut extra: &[u8]) -> Option<()> {
        let held = |value: u64| value != u64::from(u32::MAX);
        while extra.len() >= 4 {
            let record = Record(extra);
            let (id, size) = (record.u16(0)?, usize::from(record.u16(2)?));
            if id == 1 {
                let mut at = 4;
                for value in [&mut self.bytes, &mut self.packed, &mut self.header_at] {
                    if !held(*value) {
                        *value = record.u64(at)?;
                        at += 8;
                    }
                }
                return Some(());
            }
            extra = extra.get(4 + size..)?;
        }
        Some(())
    }

    fn read(&self, file: &mut dyn FileRead) -> Result<Vec<u8>, Problem> {
        let mut header = [0; 30];
        if self.header_at.saturating_add(30) > file.bytes() {
            return Err(DAMAGED);
        }
        file.read_exact_at(self.header_at, &mut header)?;
        let record = Record(&header);
        let (name, extra) = (
            record.u16(26).ok_or(DAMAGED)?,
            record.u16(28).ok_or(DAMAGED)?,
        );
        let data_at = self.header_at + 30 + u64::from(name) + u64::from(extra);
        let is_inside = data_at
            .checked_add(self.packed)
            .is_some_and(|end| end <= file.bytes());
        if !header.starts_with(b"PK\x03\x04") || !is_inside {
            return Err(DAMAGED);
        }
        let mut packed = vec![0; self.packed as usize];
        file.read_exact_at(data_at, &mut packed)?;
        let bytes = match self.method {
            0 => packed,
            8 => self.inflated(&packed)?,
            _ => return Err(Problem::Format("neither stored nor deflated")),
        };
        let mut crc = Crc::new();
        crc.update(&bytes);
        if bytes.len() as u64 != self.bytes || crc.sum() != self.crc {
            return Err(Problem::Format("damaged: its checksum is another"));
        }
        Ok(bytes)
    }

    fn inflated(&self, packed: &[u8]) -> Result<Vec<u8>, Problem> {
        // Deflate makes at most 1032 bytes of one.
        if self.bytes > self.packed.saturating_mul(1032).saturating_add(1032) {
            return Err(DAMAGED);
        }
        let mut bytes = Vec::with_capacity(self.bytes as usize);
        let mut inflate = Decompress::new(false);
        match inflate.decompress_vec(packed, &mut bytes, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) => Ok(bytes),
            _ => Err(DAMAGED),
        }
    }
}

/// A file whose bytes are here.
#[derive(Debug)]
struct InMemory {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl FileRead for InMemory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|at| self.bytes.get(at..));
        let rest = rest.unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}
