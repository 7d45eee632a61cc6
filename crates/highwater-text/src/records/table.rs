//! Tables with a header: values between commas or tabs.

use std::io::{self, Read};
use std::path::PathBuf;

use csv::ByteRecord;
use serde_json::{Map, Value};

use super::fault::lift;
use super::source::{Source, breaks};
use super::{Fault, RECORD_BYTES_MAX, Record, Rows, sniff};
use crate::{Place, Position, TextError};

/// What the reader of tables reads ahead.
const BUFFER_BYTES: usize = 64 << 10;
/// The most columns.
const COLUMNS_MAX: usize = 1 << 14;
/// The most separators in a row, those within quotes counted too: the reader keeps a place for each.
const SEPARATORS_MAX: usize = 1 << 20;
/// A row that is added at the end of the file. It comes out by itself unless a quote was left open.
const LAST: &[u8] = b"\n\x02the end of the file\x03\n";

pub(super) struct Table {
    path: PathBuf,
    reader: csv::Reader<Limited>,
    separator: u8,
    header: Option<Vec<String>>,
    row: ByteRecord,
}

impl Table {
    pub(super) fn new(path: PathBuf, source: Source, separator: u8) -> Self {
        let limited = Limited {
            source,
            separator,
            bytes: 0,
            separators: 0,
            started: false,
            last: LAST,
        };
        let reader = csv::ReaderBuilder::new()
            .delimiter(separator)
            // Counted with its line break, a row is told apart from the next one. `trim_row` sees to CRLF.
            .terminator(csv::Terminator::Any(b'\n'))
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(limited);
        Self {
            path,
            reader,
            separator,
            header: None,
            row: ByteRecord::new(),
        }
    }

    /// Reads a row that is not blank; says on which line it starts.
    fn read_row(&mut self) -> Result<Option<u64>, TextError> {
        loop {
            let before = self.reader.position().line();
            let limited = self.reader.get_mut();
            (limited.bytes, limited.separators) = (0, 0);
            if let Err(error) = self.reader.read_byte_record(&mut self.row) {
                let position = Position::Line(before);
                return Err(match error.into_kind() {
                    csv::ErrorKind::Io(error) => lift(error, &self.path, position),
                    other => {
                        let fault = Fault::new(format!("{other:?}"));
                        fault
                            .hint("write it with a library")
                            .at(&self.path, position)
                    }
                });
            }
            let row = self.row.as_slice();
            if row == &LAST[1..LAST.len() - 1] {
                return Ok(None);
            }
            if row.ends_with(LAST) {
                return Err(open_quote().at(&self.path, Position::Line(before)));
            }
            // Blank lines before the row were passed over: its lines are counted back from its end.
            let lines = 1 + breaks(row);
            let end = self.reader.position().line();
            self.trim_row();
            if !self.row.is_empty() {
                return Ok(Some(end.saturating_sub(lines)));
            }
        }
    }

    /// Takes away the carriage return before a line break. A row of nothing else is made empty.
    fn trim_row(&mut self) {
        if self.row.as_slice().last() != Some(&b'\r') {
            return;
        }
        if self.row.as_slice() == b"\r" && self.row.len() == 1 {
            self.row.clear();
            return;
        }
        let Some(last) = self.row.len().checked_sub(1) else {
            return;
        };
        let field = self.row.get(last).unwrap_or_default();
        let field = field.strip_suffix(b"\r").unwrap_or(field).to_vec();
        self.row.truncate(last);
        self.row.push_field(&field);
    }

    /// A field as text.
    fn text(&self, at: usize, line: u64) -> Result<String, TextError> {
        let bytes = self.row.get(at).unwrap_or_default();
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(utf8) => {
                let up_to = utf8.valid_up_to();
                let fault = Fault::new(format!(
                    "field {}: byte {} (0x{:02x}) is not UTF-8",
                    at + 1,
                    up_to + 1,
                    bytes[up_to]
                ));
                let hint = "convert the file, for example: iconv -f LATIN1 -t UTF-8 FILE > NEW";
                Err(fault.hint(hint).at(&self.path, Position::Line(line)))
            }
        }
    }

    fn read_header(&mut self) -> Result<Option<Vec<String>>, TextError> {
        let Some(line) = self.read_row()? else {
            return Ok(None);
        };
        let at = |fault: Fault| fault.at(&self.path, Position::Line(line));
        if self.row.len() > COLUMNS_MAX {
            let many = Fault::new(format!("the header has more than {COLUMNS_MAX} columns"));
            return Err(at(many.hint("the first row must name the columns")));
        }
        let mut header: Vec<String> = Vec::with_capacity(self.row.len());
        for column in 0..self.row.len() {
            let name = self.text(column, line)?;
            if name.trim().is_empty() {
                let empty = Fault::new(format!("column {} has no name", column + 1));
                return Err(at(empty.hint(
                    "name it in the first row; pandas writes no nameless column with to_csv(.., index=False)",
                )));
            }
            if name.contains('\r') {
                let fault = Fault::new("lines end in carriage returns only");
                return Err(at(fault.hint("convert it: tr '\\r' '\\n' < FILE > NEW")));
            }
            header.push(name);
        }
        if let Some(name) = twice(&header) {
            let fault = Fault::new(format!("two columns are named \"{name}\""));
            return Err(at(fault.hint("give each column a name of its own")));
        }
        if let ([only], b',') = (&header[..], self.separator)
            && let Some(other) = only.chars().find(|c| ";\t|".contains(*c))
        {
            let fault = Fault::new(format!(
                "one column, named {only:?}: no commas, but {other:?}"
            ));
            return Err(at(
                fault.hint("save it with commas; with tabs, let its name end in .tsv")
            ));
        }
        Ok(Some(header))
    }
}

impl Rows for Table {
    fn next_record(&mut self) -> Result<Option<Record>, TextError> {
        if self.header.is_none() {
            self.header = self.read_header()?;
            if self.header.is_none() {
                return Ok(None);
            }
        }
        let Some(line) = self.read_row()? else {
            return Ok(None);
        };
        let header = self.header.as_deref().unwrap_or_default();
        let position = Position::Line(line);
        if self.row.len() != header.len() {
            let (fields, columns) = (self.row.len(), header.len());
            let fault = Fault::new(format!(
                "{fields} field{}, and the header has {columns} column{}",
                plural(fields),
                plural(columns)
            ));
            let hint = "quote fields that contain commas, tabs, quotes or line breaks, and double the quotes in them";
            return Err(fault.hint(hint).at(&self.path, position));
        }
        let mut fields = Map::with_capacity(header.len());
        for (at, name) in header.iter().enumerate() {
            fields.insert(name.clone(), Value::String(self.text(at, line)?));
        }
        let place = Place {
            path: self.path.clone(),
            position,
        };
        Ok(Some(Record { place, fields }))
    }
}

const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// A name that comes twice.
fn twice(names: &[String]) -> Option<&str> {
    let mut sorted: Vec<&str> = names.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let mut pairs = sorted.windows(2);
    pairs.find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// The bytes of a table, as many as one row may have.
struct Limited {
    source: Source,
    separator: u8,
    /// Since the row began, or a little before.
    bytes: usize,
    separators: usize,
    started: bool,
    /// What is still to come of [`LAST`].
    last: &'static [u8],
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes > RECORD_BYTES_MAX {
            return Err(too_long().io());
        }
        if self.separators > SEPARATORS_MAX {
            return Err(too_wide().io());
        }
        let mut read = self.source.read(buffer)?;
        if !self.started && read > 0 {
            self.started = true;
            if buffer[..read].starts_with(sniff::BOM) {
                buffer.copy_within(sniff::BOM.len()..read, 0);
                read -= sniff::BOM.len();
            }
        }
        if read == 0 {
            read = self.last.read(buffer)?;
        }
        let separators = buffer[..read].iter().filter(|&&b| b == self.separator);
        self.separators += separators.count();
        self.bytes += read;
        Ok(read)
    }
}

fn open_quote() -> Fault {
    let fault = Fault::new("a double quote is opened in this row and never closed");
    fault.hint("close it; a quote within a quoted field is written twice")
}

fn too_long() -> Fault {
    let fault = Fault::new(format!(
        "the row that begins here is longer than {} MiB",
        RECORD_BYTES_MAX >> 20
    ));
    fault.hint("a double quote may have been left open; split long texts into several rows")
}

fn too_wide() -> Fault {
    let fault = Fault::new(format!(
        "the row that begins here has more than {SEPARATORS_MAX} separators"
    ));
    fault.hint("a double quote may have been left open; one text belongs in each field")
}
