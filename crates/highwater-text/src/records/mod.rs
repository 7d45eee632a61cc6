//! The records of files, one after the other: one of them is in memory at a time, never a file.
//!
//! What a file holds is told by the ending of its name, capital letters or not:
//!
//! - `.jsonl`, `.ndjson`: an object of JSON on each line;
//! - `.json`: a list of objects, or objects one after the other;
//! - `.csv`, `.tsv`: a table whose first row names the columns; all values are texts;
//! - `.parquet`: a table; what has no form in JSON, such as pictures, is null;
//! - `.txt`, `.text`, `.md`: one text, named `text`, or several if it is longer than [`PIECE_BYTES_MAX`].
//!
//! Each but Parquet may be packed with gzip or Zstandard, whether a second ending (`.gz`, `.zst`) says so or not.
//!
//! However a file is made, no block of memory is larger than four times the file and 16 MiB more, and all
//! together stays below four times the file and some 90 MiB: that of the longest record, what it is made from, and
//! pages of all columns. A few MiB do for files as they are met.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_memory::Files;
use serde_json::{Map, Value};

use crate::data::{Found, Reads};
use crate::{Place, Position, TextError};

mod columnar;
mod fault;
mod folder;
mod json;
mod kind;
mod lines;
mod list;
mod sniff;
mod source;
mod table;
mod text;

use fault::Fault;
use kind::{Format, Kind};

pub use folder::{holds_records, record_files, record_parts};
pub(crate) use json::embedded;
pub use kind::is_record_file;

/// The most bytes of one record: of a line, of an element of a list, of a row of a table.
pub const RECORD_BYTES_MAX: usize = 8 << 20;
/// The most bytes of text in one record of a file that is nothing but text; longer files are several.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// The most bytes of a page of a Parquet file, once it is unpacked.
pub const PAGE_BYTES_MAX: usize = 16 << 20;

/// One record of a file: its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Where it is.
    pub place: Place,
    /// Its fields, in the order in which the file has them.
    pub fields: Map<String, Value>,
}

/// What reads one file.
trait Rows: Send {
    /// The next record; none at the end of the file.
    fn next_record(&mut self) -> Result<Option<Record>, TextError>;
}

/// The records of a file or of the files of a folder. After an error there are no more.
pub struct Records {
    files: Arc<dyn Files>,
    /// What was asked for.
    path: PathBuf,
    parts: Vec<PathBuf>,
    next_part: usize,
    open: Option<Box<dyn Rows>>,
    any: bool,
    ended: bool,
    bytes: u64,
    read: Arc<AtomicU64>,
}

impl Records {
    /// Finds the files, those left out that names say are not trained on. Each is opened when it is its turn.
    ///
    /// # Errors
    /// [`TextError`] where there is no file, or one of an unknown kind.
    pub fn open(files: Arc<dyn Files>, path: &Path) -> Result<Self, TextError> {
        let parts = record_parts(&*files, path, (None, Reads::Training))?;
        Ok(Self::of(files, path, parts.train))
    }

    /// The records of some files; `path` is what was asked for.
    pub fn of(files: Arc<dyn Files>, path: &Path, found: Vec<Found>) -> Self {
        Self {
            files,
            path: path.to_owned(),
            bytes: found.iter().map(|&(_, bytes)| bytes).sum(),
            parts: found.into_iter().map(|(path, _)| path).collect(),
            next_part: 0,
            open: None,
            any: false,
            ended: false,
            read: Arc::default(),
        }
    }

    /// Bytes of the files, as they lie on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many of [`Records::bytes`] were read so far.
    pub fn bytes_read(&self) -> u64 {
        // Some bytes of a Parquet file are read twice.
        self.read.load(Ordering::Relaxed).min(self.bytes)
    }

    fn advance(&mut self) -> Result<Option<Record>, TextError> {
        loop {
            if let Some(rows) = &mut self.open {
                if let Some(record) = rows.next_record()? {
                    self.any = true;
                    return Ok(Some(record));
                }
                self.open = None;
            }
            match self.parts.get(self.next_part) {
                Some(part) => self.open = Some(open_rows(&self.files, part, &self.read)?),
                None if self.any => return Ok(None),
                None => return Err(no_records().at(&self.path, Position::Whole)),
            }
            self.next_part += 1;
        }
    }
}

impl Iterator for Records {
    type Item = Result<Record, TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.ended = true;
            self.open = None;
        }
        next
    }
}

impl std::iter::FusedIterator for Records {}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("path", &self.path)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Opens a file as what its name says that it is.
fn open_rows(
    files: &Arc<dyn Files>,
    path: &Path,
    read: &Arc<AtomicU64>,
) -> Result<Box<dyn Rows>, TextError> {
    let kind = Kind::of(path).ok_or_else(|| kind::unknown(path))?;
    if kind.format == Format::Parquet {
        return match kind.wrap {
            None => Ok(Box::new(columnar::Parquet::open(&**files, path, read)?)),
            Some(wrap) => Err(packed_parquet(wrap).at(path, Position::Whole)),
        };
    }
    let source = source::open(&**files, path, kind, read)?;
    let path = path.to_owned();
    Ok(match kind.format {
        Format::Lines => Box::new(lines::Lines::new(path, source)),
        Format::Json => Box::new(list::List::new(path, source)),
        Format::Csv => Box::new(table::Table::new(path, source, b',')),
        Format::Tsv => Box::new(table::Table::new(path, source, b'\t')),
        Format::Text | Format::Parquet => Box::new(text::Text::new(path, source)),
    })
}

fn no_records() -> Fault {
    Fault::new("there are no examples in it").hint("at least one is needed")
}

fn packed_parquet(wrap: kind::Wrap) -> Fault {
    let unpack = match wrap {
        kind::Wrap::Gzip => "gunzip",
        kind::Wrap::Zstd => "unzstd",
    };
    Fault::new("a Parquet file can only be read where it is not packed as a whole").hint(format!(
        "unpack it with {unpack}; its pages are packed already"
    ))
}

#[cfg(test)]
mod tests;
