//! The pages of a column in a group of rows, as the library takes them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use highwater_memory::FileRead;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

use super::footer::Chunk;
use super::header::{self, Header, Kind};
use super::shape::Leaf;
use super::thrift::Broken;
use super::{AGAIN, Fault, levels, unpack};
use crate::records::PAGE_BYTES_MAX;

/// What is read first to find a header.
const HEADER_BYTES: usize = 256;
/// The longest header: statistics in it may be long.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// The most values of a dictionary: each takes up to 32 bytes.
const DICTIONARY_MAX: u32 = 1 << 19;
/// Pages of all columns at once may have so many bytes, and four times those of the file.
const HELD_BYTES: u64 = 64 << 20;
/// What to do about pages that are too large.
const SMALLER: &str = "write smaller pages and groups of rows: \
    pyarrow.parquet.write_table(table, path, row_group_size=1000, write_batch_size=16, data_page_size=1 << 20), \
    or with DuckDB COPY .. TO .. (ROW_GROUP_SIZE 2048)";

/// A file that pages come from.
#[derive(Clone)]
pub(super) struct Input {
    file: Arc<Mutex<Box<dyn FileRead>>>,
    /// Bytes that were read.
    read: Arc<AtomicU64>,
    /// Bytes of pages in memory, and the most that may be.
    held: Arc<AtomicU64>,
    most: u64,
}

impl Input {
    pub(super) fn new(
        file: Arc<Mutex<Box<dyn FileRead>>>,
        bytes: u64,
        read: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            file,
            read: Arc::clone(read),
            held: Arc::default(),
            most: HELD_BYTES.saturating_add(bytes.saturating_mul(4)),
        }
    }

    fn read(&self, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.read_exact_at(at, &mut buffer)?;
        Ok(buffer)
    }
}

/// Reads pages, unpacks them, and hands on those that are safe to decode.
pub(super) struct Pages {
    input: Input,
    leaf: Arc<Leaf>,
    codec: i64,
    /// Where the next header or, after it, the next page starts; and where the chunk ends.
    at: u64,
    end: u64,
    /// The header of the page at `at`.
    next: Option<Header>,
    has_dictionary: bool,
    /// Values of the row that may go on in the next page.
    run: usize,
    /// What is counted as held: the dictionary and the page.
    held: [u64; 2],
}

impl Pages {
    pub(super) fn new(
        input: Input,
        leaf: Arc<Leaf>,
        chunk: &Chunk,
    ) -> std::result::Result<Self, Fault> {
        let of_column = |mut fault: Fault| {
            fault.problem = format!("column {}: {}", leaf.name, fault.problem);
            fault
        };
        unpack::check(chunk.codec).map_err(of_column)?;
        if chunk.physical != leaf.number {
            let other = Fault::new("its values are not of the type that the schema says");
            return Err(of_column(other.hint(AGAIN)));
        }
        Ok(Self {
            input,
            leaf,
            codec: chunk.codec,
            at: chunk.start,
            end: chunk.end,
            next: None,
            has_dictionary: false,
            run: 0,
            held: [0; 2],
        })
    }

    fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Goes to the next page; none at the end.
    fn find(&mut self) -> io::Result<Option<Header>> {
        if self.next.is_some() || self.left() == 0 {
            return Ok(self.next);
        }
        let damaged = || {
            Fault::new("the header of a page is damaged")
                .hint(AGAIN)
                .io()
        };
        let mut window = HEADER_BYTES;
        loop {
            let bytes = self.left().min(window as u64) as usize;
            let head = self.input.read(self.at, bytes)?;
            match header::parse(&head) {
                Ok((header, length)) => {
                    self.at += length as u64;
                    self.input.read.fetch_add(length as u64, Ordering::Relaxed);
                    if u64::from(header.packed_bytes) > self.left() {
                        return Err(damaged());
                    }
                    self.next = Some(header);
                    return Ok(self.next);
                }
                Err(Broken::Short) if bytes == window && window < HEADER_BYTES_MAX => window *= 4,
                Err(_) => return Err(damaged()),
            }
        }
    }

    /// The next page that holds values; none at the end.
    fn page(&mut self) -> io::Result<Option<Page>> {
        while let Some(header) = self.find()? {
            self.next = None;
            let start = self.at;
            self.at += u64::from(header.packed_bytes);
            let is_dictionary = header.kind == Kind::Dictionary;
            if header.kind == Kind::Other || header.values == 0 && !is_dictionary {
                continue;
            }
            check(&header).map_err(Fault::io)?;
            self.hold(usize::from(!is_dictionary), header.bytes.into())
                .map_err(Fault::io)?;
            let packed = self.input.read(start, header.packed_bytes as usize)?;
            let read = u64::from(header.packed_bytes);
            self.input.read.fetch_add(read, Ordering::Relaxed);
            return self.decode(&header, packed).map(Some).map_err(Fault::io);
        }
        Ok(None)
    }

    /// Counts a dictionary or page instead of the one before.
    fn hold(&mut self, which: usize, bytes: u64) -> std::result::Result<(), Fault> {
        let before = std::mem::replace(&mut self.held[which], bytes);
        let held = &self.input.held;
        held.fetch_sub(before, Ordering::Relaxed);
        if held.fetch_add(bytes, Ordering::Relaxed) + bytes > self.input.most {
            let fault = Fault::new("its columns take too much memory together");
            return Err(fault.hint(SMALLER));
        }
        Ok(())
    }

    fn decode(&mut self, header: &Header, packed: Vec<u8>) -> std::result::Result<Page, Fault> {
        let bytes = header.bytes as usize;
        let unpacked = match header.kind {
            Kind::DataV2 {
                levels,
                packed: is_packed,
                ..
            } => {
                let codec = if is_packed { self.codec } else { 0 };
                let levels = u64::from(levels[0]) + u64::from(levels[1]);
                let levels = usize::try_from(levels).unwrap_or(usize::MAX);
                unpack_values(&self.leaf, codec, packed, levels, bytes)?
            }
            _ => unpack::unpack(&self.leaf, self.codec, packed, bytes)?,
        };
        let encoding = encoding(header.encoding)?;
        if header.kind == Kind::Dictionary {
            if self.has_dictionary {
                return Err(Fault::new("a column has two dictionaries").hint(AGAIN));
            }
            self.has_dictionary = true;
        } else {
            let by_number = matches!(
                header.encoding,
                levels::PLAIN_DICTIONARY | levels::RLE_DICTIONARY
            );
            if by_number && !self.has_dictionary {
                return Err(Fault::new("a dictionary is missing").hint(AGAIN));
            }
            levels::check(&self.leaf, header, unpacked.buffer(), &mut self.run)?;
        }
        let buf = unpacked.buffer().clone();
        let num_values = header.values;
        Ok(match header.kind {
            Kind::Data { levels } => Page::DataPage {
                buf,
                num_values,
                encoding,
                rep_level_encoding: self::encoding(levels[0])?,
                def_level_encoding: self::encoding(levels[1])?,
                statistics: None,
            },
            Kind::DataV2 {
                nulls,
                rows,
                levels,
                ..
            } => Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                num_nulls: nulls,
                num_rows: rows,
                rep_levels_byte_len: levels[0],
                def_levels_byte_len: levels[1],
                is_compressed: false,
                statistics: None,
            },
            Kind::Dictionary | Kind::Other => Page::DictionaryPage {
                buf,
                num_values,
                encoding,
                is_sorted: false,
            },
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let held = self.held.iter().sum();
        self.input.held.fetch_sub(held, Ordering::Relaxed);
    }
}

/// Unpacks what follows the levels, which are not packed.
fn unpack_values(
    leaf: &Leaf,
    codec: i64,
    mut packed: Vec<u8>,
    levels: usize,
    bytes: usize,
) -> std::result::Result<Page, Fault> {
    if levels > bytes || levels > packed.len() {
        return Err(Fault::new("a page is damaged").hint(AGAIN));
    }
    if codec == 0 {
        return unpack::unpack(leaf, codec, packed, bytes);
    }
    let values = packed.split_off(levels);
    let values = unpack::unpack(leaf, codec, values, bytes - levels)?;
    packed.reserve_exact(bytes - levels);
    packed.extend_from_slice(values.buffer());
    Ok(unpack::page(packed))
}

/// Refuses pages that would take too much memory.
fn check(header: &Header) -> std::result::Result<(), Fault> {
    let most = PAGE_BYTES_MAX as u32;
    if header.bytes > most || header.packed_bytes > most + most / 16 {
        let bytes = header.bytes.max(header.packed_bytes);
        let fault = Fault::new(format!("a page of {bytes} bytes; the most is {most}"));
        return Err(fault.hint(SMALLER));
    }
    if header.kind == Kind::Dictionary && header.values > DICTIONARY_MAX {
        let values = header.values;
        let fault = Fault::new(format!(
            "a dictionary of {values} values; the most is {DICTIONARY_MAX}"
        ));
        return Err(fault.hint("write it with use_dictionary=False"));
    }
    Ok(())
}

fn encoding(number: i64) -> std::result::Result<Encoding, Fault> {
    #[expect(deprecated, reason = "old files have it")]
    let packed = Encoding::BIT_PACKED;
    Ok(match number {
        levels::PLAIN => Encoding::PLAIN,
        levels::PLAIN_DICTIONARY => Encoding::PLAIN_DICTIONARY,
        levels::RLE => Encoding::RLE,
        levels::BIT_PACKED => packed,
        5 => Encoding::DELTA_BINARY_PACKED,
        levels::DELTA_LENGTH_BYTE_ARRAY => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        levels::DELTA_BYTE_ARRAY => Encoding::DELTA_BYTE_ARRAY,
        levels::RLE_DICTIONARY => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => {
            let fault = Fault::new(format!(
                "values are encoded in an unknown way, number {number}"
            ));
            return Err(fault.hint("write it as version 1.0 or 2.6 of the format"));
        }
    })
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Carries an error through the library.
fn through(error: io::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.page().map_err(through)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        let header = self.find().map_err(through)?;
        Ok(header.map(|header| PageMetadata {
            // Pages of the second version start with a row.
            num_rows: match header.kind {
                Kind::DataV2 { rows, .. } => Some(rows as usize),
                _ => None,
            },
            num_levels: Some(header.values as usize),
            is_dict: header.kind == Kind::Dictionary,
        }))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        if let Some(header) = self.find().map_err(through)? {
            self.at += u64::from(header.packed_bytes);
            self.next = None;
        }
        Ok(())
    }
}
