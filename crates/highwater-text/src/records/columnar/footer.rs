//! The footer of a Parquet file: what columns there are, and where their values lie.
//! Source: <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_memory::FileRead;

use super::thrift::{self, Broken, Thrift};
use super::{AGAIN, Fault};
use crate::records::kind::Format;
use crate::records::sniff;

const MAGIC: &[u8; 4] = b"PAR1";
/// The footer is encrypted.
const MAGIC_ENCRYPTED: &[u8; 4] = b"PARE";
/// The length of the footer and the magic bytes after it.
const TAIL_BYTES: u64 = 8;
/// The longest footer.
const FOOTER_BYTES_MAX: u64 = 16 << 20;
/// The most columns, structs and lists of a schema.
const ELEMENTS_MAX: usize = 1 << 14;
/// The most groups of rows.
const GROUPS_MAX: usize = 1 << 18;

/// What a footer says.
pub(super) struct Footer {
    pub(super) schema: Vec<Element>,
    pub(super) groups: Vec<Group>,
}

/// A column, struct or list, in the order of a tree that is gone through from the root.
#[derive(Clone, Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    /// The type of a column.
    pub(super) physical: Option<i64>,
    /// Bytes of its values, where all have the same number.
    pub(super) length: i64,
    /// 0 for what is always there, 1 for what may be missing, 2 for what may come many times.
    pub(super) repetition: Option<i64>,
    pub(super) children: usize,
    /// What it means, as older and younger programs say it.
    pub(super) converted: Option<i64>,
    pub(super) logical: Option<Logical>,
    pub(super) scale: i64,
}

/// What a column means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Logical {
    pub(super) kind: i64,
    /// Of decimals.
    pub(super) scale: i64,
    /// Of times: 1 for milliseconds, 2 for microseconds, 3 for nanoseconds.
    pub(super) unit: i64,
    /// Of times: whether they are of the world's clock.
    pub(super) utc: bool,
    /// Of whole numbers.
    pub(super) signed: bool,
}

/// A group of rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) rows: u64,
    pub(super) chunks: Vec<Chunk>,
}

/// The values of a column in a group of rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunk {
    pub(super) physical: i64,
    pub(super) codec: i64,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Reads the footer of a file.
///
/// # Errors
/// Those of files, and faults.
pub(super) fn read(file: &mut dyn FileRead, read: &AtomicU64) -> io::Result<Footer> {
    let bytes = file.bytes();
    let mut magic = [0; 4];
    let mut tail = [0; TAIL_BYTES as usize];
    if bytes == 0 {
        return Err(Fault::new("the file is empty")
            .hint("leave it out, or write it again")
            .io());
    }
    let start = magic.len().min(bytes as usize);
    file.read_exact_at(0, &mut magic[..start])?;
    if &magic == MAGIC_ENCRYPTED {
        return Err(encrypted().io());
    }
    if &magic != MAGIC {
        let mut head = vec![0; bytes.min(sniff::HEAD_BYTES as u64) as usize];
        file.read_exact_at(0, &mut head)?;
        return Err(not_parquet(&head).io());
    }
    if bytes < 4 + TAIL_BYTES {
        return Err(cut().io());
    }
    file.read_exact_at(bytes - TAIL_BYTES, &mut tail)?;
    if &tail[4..] == MAGIC_ENCRYPTED {
        return Err(encrypted().io());
    }
    if &tail[4..] != MAGIC {
        return Err(cut().io());
    }
    let [a, b, c, d, ..] = tail;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    if length > bytes - 4 - TAIL_BYTES {
        let fault = Fault::new(format!(
            "its footer is said to have {length} bytes: too many"
        ));
        return Err(fault.hint(AGAIN).io());
    }
    if length > FOOTER_BYTES_MAX {
        let fault = Fault::new(format!("its footer has {length} bytes: too many"));
        return Err(fault
            .hint("write larger groups of rows: row_group_size=100_000")
            .io());
    }
    let mut footer = vec![0; length as usize];
    let start = bytes - TAIL_BYTES - length;
    file.read_exact_at(start, &mut footer)?;
    read.fetch_add(4 + TAIL_BYTES + length, Ordering::Relaxed);
    parse(&footer, start).map_err(Fault::io)
}

fn not_parquet(head: &[u8]) -> Fault {
    // What is no Parquet may well be said to be something else.
    let known = sniff::known(head, Format::Csv);
    known.unwrap_or_else(|| {
        Fault::new("not a Parquet file: it does not start with PAR1")
            .hint("use the extension of its format, or download it again")
    })
}

fn cut() -> Fault {
    Fault::new("the file ends in the middle: it does not end with PAR1").hint("copy the file again")
}

pub(super) fn encrypted() -> Fault {
    Fault::new("the file is encrypted").hint("write it without encryption")
}

/// Reads a footer that starts at a byte of the file.
fn parse(bytes: &[u8], start: u64) -> Result<Footer, Fault> {
    let mut reader = Reader {
        start,
        fault: None,
        schema: Vec::new(),
        groups: Vec::new(),
    };
    let mut thrift = Thrift::new(bytes);
    let parsed = reader.file(&mut thrift);
    match (reader.fault, parsed) {
        (Some(fault), _) => Err(fault),
        (None, Err(Broken::Short | Broken::Wrong)) => {
            Err(Fault::new("its footer is damaged").hint(AGAIN))
        }
        (None, Ok(())) => Ok(Footer {
            schema: reader.schema,
            groups: reader.groups,
        }),
    }
}

struct Reader {
    /// Where the footer starts, which chunks end before.
    start: u64,
    /// What stopped the reader, where that can be said.
    fault: Option<Fault>,
    schema: Vec<Element>,
    groups: Vec<Group>,
}

impl Reader {
    /// Stops.
    fn stop<T>(&mut self, fault: Fault) -> thrift::Result<T> {
        self.fault.get_or_insert(fault);
        Err(Broken::Wrong)
    }

    fn file(&mut self, thrift: &mut Thrift<'_>) -> thrift::Result<()> {
        thrift.fields(thrift::STRUCT, |thrift, number, kind| {
            match number {
                2 => {
                    let (kind, count) = thrift.list(kind)?;
                    if count > ELEMENTS_MAX {
                        let many = format!("more than {ELEMENTS_MAX} columns");
                        return self.stop(Fault::new(many).hint("write fewer columns"));
                    }
                    for _ in 0..count {
                        self.schema.push(element(thrift, kind)?);
                    }
                }
                4 => {
                    let (kind, count) = thrift.list(kind)?;
                    if count > GROUPS_MAX {
                        let many = format!("more than {GROUPS_MAX} groups of rows");
                        return self.stop(Fault::new(many).hint("write larger ones"));
                    }
                    for _ in 0..count {
                        let group = self.group(thrift, kind)?;
                        self.groups.push(group);
                    }
                }
                8 => return self.stop(encrypted()),
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    fn group(&mut self, thrift: &mut Thrift<'_>, kind: u8) -> thrift::Result<Group> {
        let mut group = Group::default();
        thrift.fields(kind, |thrift, number, kind| {
            match number {
                1 => {
                    let (kind, count) = thrift.list(kind)?;
                    if count > ELEMENTS_MAX {
                        return Err(Broken::Wrong);
                    }
                    for _ in 0..count {
                        group.chunks.push(self.chunk(thrift, kind)?);
                    }
                }
                3 => match u64::try_from(thrift.int(kind)?) {
                    Ok(rows) => group.rows = rows,
                    Err(_) => return Err(Broken::Wrong),
                },
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(group)
    }

    fn chunk(&mut self, thrift: &mut Thrift<'_>, kind: u8) -> thrift::Result<Chunk> {
        let mut chunk = None;
        thrift.fields(kind, |thrift, number, kind| {
            match number {
                1 if !thrift.bytes(kind)?.is_empty() => {
                    let fault = Fault::new("its values are in another file");
                    return self.stop(fault.hint("write it as one file"));
                }
                1 => {}
                3 => chunk = Some(self.values(thrift, kind)?),
                8 | 9 => return self.stop(encrypted()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        chunk.ok_or(Broken::Wrong)
    }

    fn values(&mut self, thrift: &mut Thrift<'_>, kind: u8) -> thrift::Result<Chunk> {
        let (mut physical, mut codec) = (None, None);
        let (mut bytes, mut data, mut dictionary) = (None, None, None);
        thrift.fields(kind, |thrift, number, kind| {
            let place = match number {
                1 => &mut physical,
                4 => &mut codec,
                7 => &mut bytes,
                9 => &mut data,
                11 => &mut dictionary,
                _ => return Ok(false),
            };
            *place = Some(thrift.int(kind)?);
            Ok(true)
        })?;
        let (Some(physical), Some(codec)) = (physical, codec) else {
            return Err(Broken::Wrong);
        };
        let (Some(bytes), Some(data)) = (bytes, data) else {
            return Err(Broken::Wrong);
        };
        if bytes == 0 {
            // Where there are no values it makes no difference where they are.
            return Ok(Chunk {
                physical,
                codec,
                ..Chunk::default()
            });
        }
        // Some programs write 0 where there is no dictionary, or nothing but a dictionary.
        let start = match dictionary {
            Some(dictionary) if dictionary > 0 && data > 0 => dictionary.min(data),
            Some(dictionary) if dictionary > 0 => dictionary,
            _ => data,
        };
        let range = u64::try_from(start).ok().zip(u64::try_from(bytes).ok());
        let range = range.and_then(|(start, bytes)| Some((start, start.checked_add(bytes)?)));
        match range {
            Some((start, end)) if start >= 4 && end <= self.start => Ok(Chunk {
                physical,
                codec,
                start,
                end,
            }),
            _ => self.stop(Fault::new("values lie outside the file").hint(AGAIN)),
        }
    }
}

fn element(thrift: &mut Thrift<'_>, kind: u8) -> thrift::Result<Element> {
    let mut element = Element::default();
    let mut name = None;
    thrift.fields(kind, |thrift, number, kind| {
        match number {
            1 => element.physical = Some(thrift.int(kind)?),
            2 => element.length = thrift.int(kind)?,
            3 => element.repetition = Some(thrift.int(kind)?),
            4 => name = Some(String::from_utf8_lossy(thrift.bytes(kind)?).into_owned()),
            5 => {
                element.children = usize::try_from(thrift.int(kind)?).map_err(|_| Broken::Wrong)?;
            }
            6 => element.converted = Some(thrift.int(kind)?),
            7 => element.scale = thrift.int(kind)?,
            10 => element.logical = logical(thrift, kind)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    element.name = name.ok_or(Broken::Wrong)?;
    Ok(element)
}

/// A union: a struct with one field, which says what it is by its number.
fn logical(thrift: &mut Thrift<'_>, kind: u8) -> thrift::Result<Option<Logical>> {
    let mut found = None;
    thrift.fields(kind, |thrift, number, kind| {
        let mut logical = Logical {
            kind: number,
            scale: 0,
            unit: 0,
            utc: false,
            signed: true,
        };
        thrift.fields(kind, |thrift, field, kind| {
            match (number, field) {
                (5, 1) => logical.scale = thrift.int(kind)?,
                (7 | 8, 1) => logical.utc = kind == thrift::TRUE,
                (7 | 8, 2) => thrift.fields(kind, |_, unit, _| {
                    logical.unit = unit;
                    Ok(false)
                })?,
                (10, 2) => logical.signed = kind == thrift::TRUE,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        found = Some(logical);
        Ok(true)
    })?;
    Ok(found)
}
