//! JSON lines: an object on each.

use std::io::{BufRead, Read};
use std::path::PathBuf;

use super::fault::lift;
use super::json::{self, Start};
use super::source::Source;
use super::{Fault, RECORD_BYTES_MAX, Record, Rows, sniff};
use crate::{Place, Position, TextError};

/// A buffer that has become larger for one long line is given back.
const KEPT_BYTES: usize = 1 << 20;

pub(super) struct Lines {
    path: PathBuf,
    source: Source,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    pub(super) fn new(path: PathBuf, source: Source) -> Self {
        Self {
            path,
            source,
            line: Vec::new(),
            number: 0,
        }
    }

    /// Reads a line; says whether there was one.
    fn read_line(&mut self) -> Result<bool, TextError> {
        self.line.clear();
        self.line.shrink_to(KEPT_BYTES);
        self.number += 1;
        let most = RECORD_BYTES_MAX + 1;
        let mut limited = (&mut self.source).take(most as u64);
        let position = Position::Line(self.number);
        let read = limited.read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| lift(error, &self.path, position))?;
        if read == most && self.line.last() != Some(&b'\n') {
            return Err(too_long().at(&self.path, position));
        }
        if self.number == 1 && self.line.starts_with(sniff::BOM) {
            self.line.drain(..sniff::BOM.len());
        }
        Ok(read > 0)
    }
}

impl Rows for Lines {
    fn next_record(&mut self) -> Result<Option<Record>, TextError> {
        while self.read_line()? {
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            let start = Start {
                path: &self.path,
                line: self.number,
                column: 0,
                element: None,
            };
            let fields = json::object(self.line.trim_ascii_end(), &start)?;
            let place = Place {
                path: self.path.clone(),
                position: Position::Line(self.number),
            };
            return Ok(Some(Record { place, fields }));
        }
        Ok(None)
    }
}

fn too_long() -> Fault {
    let fault = Fault::new(format!(
        "the line is longer than {} MiB",
        RECORD_BYTES_MAX >> 20
    ));
    fault.hint("write an object on each line, and cut longer texts into several")
}
