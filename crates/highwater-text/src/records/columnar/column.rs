//! The values of one column, row by row.

use std::io;
use std::sync::Arc;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{AsBytes, DataType};
use parquet::errors::ParquetError;
use serde_json::Value;

use super::json_weight::VALUE_BYTES;
use super::pages::Pages;
use super::shape::Leaf;
use super::{AGAIN, Fault, Purse, values};

/// Room for entries that is kept from row to row, where a row needed more.
const KEPT: usize = 4096;

/// A column, and what the current row has of it.
pub(super) struct Column {
    leaf: Arc<Leaf>,
    reader: ColumnReader,
    levels: Levels,
    /// The values that are not null, and which of them is next.
    values: Vec<Value>,
    next_value: usize,
    /// The next entry: a value or a null.
    next: usize,
}

/// How deep entries are.
#[derive(Default)]
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
    count: usize,
}

impl Column {
    pub(super) fn new(leaf: Arc<Leaf>, pages: Pages) -> Self {
        Self {
            reader: get_column_reader(Arc::clone(&leaf.descriptor), Box::new(pages)),
            leaf,
            levels: Levels::default(),
            values: Vec::new(),
            next_value: 0,
            next: 0,
        }
    }

    fn fault(&self, problem: &str) -> Fault {
        Fault::new(format!("column {}: {problem}", self.leaf.name)).hint(AGAIN)
    }

    /// Reads what a row has.
    pub(super) fn load(&mut self, purse: &mut Purse) -> io::Result<()> {
        let meaning = self.leaf.meaning;
        self.values.clear();
        self.values.shrink_to(KEPT);
        (self.next, self.next_value) = (0, 0);
        let (values, levels) = (&mut self.values, &mut self.levels);
        let bytes = |bytes: &[u8], purse: &mut Purse| {
            purse.spend_text(bytes.len())?;
            values::of_bytes(bytes, meaning)
        };
        let plain = |value| Ok(value);
        let read = match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => {
                read(reader, levels, values, purse, |&v, _| plain(Value::Bool(v)))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                read(reader, levels, values, purse, |&v, _| {
                    plain(values::of_i32(v, meaning))
                })
            }
            ColumnReader::Int64ColumnReader(reader) => {
                read(reader, levels, values, purse, |&v, _| {
                    plain(values::of_i64(v, meaning))
                })
            }
            ColumnReader::Int96ColumnReader(reader) => {
                read(reader, levels, values, purse, |v, _| {
                    let parts = <[u32; 3]>::try_from(v.data());
                    plain(parts.map_or(Value::Null, values::of_int96))
                })
            }
            ColumnReader::FloatColumnReader(reader) => {
                read(reader, levels, values, purse, |&v, _| {
                    plain(values::of_f64(v.into()))
                })
            }
            ColumnReader::DoubleColumnReader(reader) => {
                read(reader, levels, values, purse, |&v, _| {
                    plain(values::of_f64(v))
                })
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                read(reader, levels, values, purse, |v, purse| {
                    bytes(v.as_bytes(), purse)
                })
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                read(reader, levels, values, purse, |v, purse| {
                    bytes(v.as_bytes(), purse)
                })
            }
        };
        read.map_err(|error| self.named(error))
    }

    /// Puts the column's name before what is wrong.
    fn named(&self, error: io::Error) -> io::Error {
        match error.downcast::<Fault>() {
            Ok(mut fault) => {
                fault.problem = format!("column {}: {}", self.leaf.name, fault.problem);
                fault.io()
            }
            Err(error) => error,
        }
    }

    /// Whether the row has no more entries.
    pub(super) fn is_done(&self) -> bool {
        self.next == self.levels.count
    }

    /// How deep the next entry is there.
    pub(super) fn definition(&self) -> Result<i16, Fault> {
        match self.leaf.definition {
            _ if self.is_done() => Err(self.fault("values are missing")),
            0 => Ok(0),
            _ => Ok(self.levels.definition[self.next]),
        }
    }

    /// At which list the next entry goes on; 0 where the row ends.
    pub(super) fn repetition(&self) -> i16 {
        match self.leaf.repetition {
            0 => 0,
            _ if self.is_done() => 0,
            _ => self.levels.repetition[self.next],
        }
    }

    /// Takes the next entry: a value or null.
    pub(super) fn take(&mut self) -> Result<Value, Fault> {
        let there = self.definition()? == self.leaf.definition;
        self.next += 1;
        if !there {
            return Ok(Value::Null);
        }
        let at = self.next_value;
        self.next_value += 1;
        match self.values.get_mut(at) {
            Some(value) => Ok(value.take()),
            None => Err(self.fault("values are missing")),
        }
    }

    /// Says that the row has used all of it.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        if self.is_done() {
            return Ok(());
        }
        Err(self.fault("it has more values than others of its list"))
    }
}

/// Reads what one row has of a column.
fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    levels: &mut Levels,
    values: &mut Vec<Value>,
    purse: &mut Purse,
    mut convert: impl FnMut(&T::T, &mut Purse) -> Result<Value, Fault>,
) -> io::Result<()> {
    for part in [&mut levels.definition, &mut levels.repetition] {
        part.clear();
        part.shrink_to(KEPT);
    }
    let mut raw = Vec::new();
    let (definition, repetition) = (&mut levels.definition, &mut levels.repetition);
    let read = reader.read_records(1, Some(definition), Some(repetition), &mut raw);
    let (_, found, entries) = read.map_err(out)?;
    // Where nothing may be missing there are no levels.
    levels.count = entries.max(found);
    if levels.count == 0 {
        return Err(Fault::new("it ends before the last row").hint(AGAIN).io());
    }
    purse.spend(levels.count * VALUE_BYTES).map_err(Fault::io)?;
    values.reserve(raw.len());
    for value in &raw {
        values.push(convert(value, purse).map_err(Fault::io)?);
    }
    Ok(())
}

/// An error that came through the library, or one of its own.
fn out(error: ParquetError) -> io::Error {
    let error = match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => return *error,
            Err(inner) => ParquetError::External(inner),
        },
        error => error,
    };
    // What is said may be as long as the data.
    let said: String = error.to_string().chars().take(200).collect();
    Fault::new(format!("the data is damaged: {said}"))
        .hint(AGAIN)
        .io()
}
