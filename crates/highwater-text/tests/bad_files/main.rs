//! Files that are wrong, and files that are merely odd: what is said of each, and that none of them takes more
//! memory than it should or brings the program down.

#![expect(
    clippy::unwrap_used,
    unsafe_code,
    reason = "a test; an allocator that counts is still an allocator"
)]

/// Cases of one name of a file: what each is, its bytes, and what should come of it.
macro_rules! cases {
    ($file:literal; $($name:literal, $bytes:expr => $want:expr;)*) => {
        vec![$(crate::Case {
            name: $name,
            file: $file,
            bytes: AsRef::<[u8]>::as_ref(&$bytes).to_vec(),
            want: $want,
        }),*]
    };
}

mod alloc;
mod faults;
mod fuzz;
mod json;
mod lists;
mod make;
mod packed;
mod parquet;
mod parquet_levels;
mod parquet_raw;
mod parquet_values;
mod raw;
mod tables;
mod texts;

use std::path::Path;
use std::sync::Arc;

use highwater_memory::Files;
use highwater_memory::files::MemoryFiles;
use highwater_text::records::{Record, Records};

/// What should come of a file.
enum Want {
    /// So many records.
    Fine(usize),
    /// So many records, and then an error that says all this.
    Bad(usize, &'static [&'static str]),
}

use Want::{Bad, Fine};

struct Case {
    name: &'static str,
    file: &'static str,
    bytes: Vec<u8>,
    want: Want,
}

/// What reading a file comes to: its records, and what is said at its end.
struct Read {
    records: Vec<Record>,
    count: usize,
    error: Option<String>,
}

/// Reads a file; keeps the first records, at most so many.
fn read(files: &Arc<dyn Files>, path: &Path, keep: usize) -> Read {
    let mut read = Read {
        records: Vec::new(),
        count: 0,
        error: None,
    };
    let error = |error: highwater_text::TextError| {
        let hint = error.hint().unwrap_or("none").to_owned();
        Some(format!("{error}; hint: {hint}"))
    };
    let mut records = match Records::open(Arc::clone(files), path) {
        Ok(records) => records,
        Err(found) => {
            read.error = error(found);
            return read;
        }
    };
    for record in &mut records {
        match record {
            Ok(record) => {
                read.count += 1;
                if read.records.len() < keep {
                    read.records.push(record);
                }
            }
            Err(found) => read.error = error(found),
        }
    }
    assert!(records.next().is_none(), "it goes on after its end");
    read
}

/// A file system with one file.
fn files(name: &str, bytes: &[u8]) -> Arc<dyn Files> {
    let files = MemoryFiles::new();
    let mut file = files.create(Path::new(name)).unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(files)
}

/// Beside four times the file: the most that one block of memory may have.
const BLOCK_BYTES: usize = 16 << 20;
/// And the most that may be held, with the longest record and the largest pages.
const HELD_BYTES: usize = 96 << 20;

/// Tries cases; says of all that are not as they should be.
fn check(cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for case in cases {
        let files = files(case.file, &case.bytes);
        let (read, needed) = alloc::measure(|| read(&files, Path::new(case.file), 0));
        let input = case.bytes.len();
        if needed.largest > 4 * input + BLOCK_BYTES || needed.peak > 4 * input + HELD_BYTES {
            wrong.push(format!("{}: {needed:?} of {input} bytes", case.name));
        }
        let (records, error) = (read.count, read.error.unwrap_or_default());
        let is_right = match case.want {
            Fine(count) => records == count && error.is_empty(),
            Bad(count, parts) => {
                let says = |part: &&str| error.contains(part);
                let has_place = error.contains(case.file) && !error.contains("hint: none");
                records == count && has_place && parts.iter().all(says)
            }
        };
        if !is_right {
            wrong.push(format!("{}: {records} records; {error:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
