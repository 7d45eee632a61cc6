//! Files that are nothing but text.

use std::io::Read;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::fault::lift;
use super::source::{Source, breaks};
use super::{Fault, PIECE_BYTES_MAX, Record, Rows, sniff};
use crate::{Place, Position, TextError};

/// What pieces are read in, so that a small file needs a small buffer.
const READ_BYTES: u64 = 64 << 10;

pub(super) struct Text {
    path: PathBuf,
    source: Source,
    /// What was read and is not in a record yet.
    buffer: Vec<u8>,
    /// The line that it starts on, and bytes of the file before it.
    line: u64,
    passed: u64,
    /// Whether the first piece came.
    started: bool,
}

impl Text {
    pub(super) fn new(path: PathBuf, source: Source) -> Self {
        Self {
            path,
            source,
            buffer: Vec::new(),
            line: 1,
            passed: 0,
            started: false,
        }
    }

    /// Reads until a piece and one byte more are there; says whether the file has ended.
    fn fill(&mut self) -> Result<bool, TextError> {
        while self.buffer.len() <= PIECE_BYTES_MAX {
            let mut part = (&mut self.source).take(READ_BYTES);
            let read = part.read_to_end(&mut self.buffer);
            let position = Position::Line(self.line);
            if read.map_err(|error| lift(error, &self.path, position))? == 0 {
                return Ok(true);
            }
            if !self.started && self.passed == 0 && self.buffer.starts_with(sniff::BOM) {
                self.buffer.drain(..sniff::BOM.len());
                self.passed = sniff::BOM.len() as u64;
            }
        }
        Ok(false)
    }

    fn not_text(&self, piece: &[u8], at: usize) -> TextError {
        let line = self.line + breaks(&piece[..at]);
        let fault = Fault::new(format!(
            "byte {} (0x{:02x}) is not UTF-8",
            self.passed + at as u64 + 1,
            piece[at]
        ));
        let hint = "convert the file, for example: iconv -f LATIN1 -t UTF-8 FILE > NEW";
        fault.hint(hint).at(&self.path, Position::Line(line))
    }
}

impl Rows for Text {
    fn next_record(&mut self) -> Result<Option<Record>, TextError> {
        loop {
            let ended = self.fill()?;
            if self.buffer.is_empty() {
                return Ok(None);
            }
            let whole = ended && self.buffer.len() <= PIECE_BYTES_MAX;
            let end = if whole {
                self.buffer.len()
            } else {
                piece_end(&self.buffer)
            };
            let rest = self.buffer.split_off(end);
            let mut piece = std::mem::replace(&mut self.buffer, rest);
            piece.shrink_to_fit();
            let lines = breaks(&piece);
            let piece = String::from_utf8(piece).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                self.not_text(error.as_bytes(), at)
            })?;
            let position = match (whole, self.started) {
                (true, false) => Position::Whole,
                _ => Position::Line(self.line),
            };
            self.line += lines;
            self.passed += end as u64;
            self.started = true;
            // A file of nothing but blanks is as an empty one.
            if piece.trim().is_empty() {
                continue;
            }
            let fields = Map::from_iter([("text".to_owned(), Value::String(piece))]);
            let place = Place {
                path: self.path.clone(),
                position,
            };
            return Ok(Some(Record { place, fields }));
        }
    }
}

/// Where a piece ends in a text that is longer than one: before white space, or else before a character.
fn piece_end(text: &[u8]) -> usize {
    let most = text.len().min(PIECE_BYTES_MAX);
    let at = |good: fn(u8, u8) -> bool| {
        let mut places = (most / 2..=most).rev();
        places.find(|&at| at < text.len() && good(text[at - 1], text[at]))
    };
    at(|before, after| !before.is_ascii_whitespace() && after.is_ascii_whitespace())
        .or_else(|| at(|_, after| after & 0xc0 != 0x80))
        .unwrap_or(most)
}
