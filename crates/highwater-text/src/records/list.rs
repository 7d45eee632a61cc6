//! A JSON list of objects, or objects one after the other.

use std::io::BufRead;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::fault::lift;
use super::json::{self, Start};
use super::source::{Source, breaks};
use super::{Fault, RECORD_BYTES_MAX, Record, Rows, sniff};
use crate::{Place, Position, TextError};

/// A buffer that has become larger for one long element is given back.
const KEPT_BYTES: usize = 1 << 20;

/// What has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Nothing,
    /// The bracket of a list, or an element of one.
    Element,
    /// An object that stands in no list.
    Object,
    End,
}

/// How a value ended.
enum Ended {
    Whole,
    /// The file ended before it did.
    Cut,
    TooLong,
}

pub(super) struct List {
    path: PathBuf,
    source: Source,
    state: State,
    element: Vec<u8>,
    number: u64,
    /// Where the next byte is: its line, from 1, and how many bytes of that are before it.
    line: u64,
    column: u64,
}

impl List {
    pub(super) fn new(path: PathBuf, source: Source) -> Self {
        Self {
            path,
            source,
            state: State::Nothing,
            element: Vec::new(),
            number: 0,
            line: 1,
            column: 0,
        }
    }

    fn here(&self) -> Position {
        Position::Column(self.line, self.column + 1)
    }

    fn fault(&self, problem: impl Into<String>, hint: &str) -> TextError {
        Fault::new(problem).hint(hint).at(&self.path, self.here())
    }

    /// The next byte that is no white space; it stays.
    fn peek(&mut self) -> Result<Option<u8>, TextError> {
        loop {
            let chunk = self.source.fill_buf();
            let chunk =
                chunk.map_err(|error| lift(error, &self.path, Position::Line(self.line)))?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let bom = self.state == State::Nothing && chunk.starts_with(sniff::BOM);
            let is_blank = |byte: &u8| byte.is_ascii_whitespace();
            let blank = if bom {
                sniff::BOM.len()
            } else {
                chunk.iter().take_while(|byte| is_blank(byte)).count()
            };
            let next = chunk.get(blank).copied();
            pass(&mut self.line, &mut self.column, &chunk[..blank]);
            self.source.consume(blank);
            if let Some(byte) = next.filter(|byte| !is_blank(byte)) {
                return Ok(Some(byte));
            }
        }
    }

    /// Takes the byte that was peeked at.
    fn take(&mut self) {
        self.source.consume(1);
        self.column += 1;
    }

    /// Goes to the next value; says whether there is one.
    fn find(&mut self) -> Result<bool, TextError> {
        let next = self.peek()?;
        match (self.state, next) {
            (State::Nothing, Some(b'[')) => {
                self.take();
                self.state = State::Element;
                if self.peek()? != Some(b']') {
                    return Ok(true);
                }
                self.end_list()
            }
            (State::Nothing, Some(_)) => {
                self.state = State::Object;
                Ok(true)
            }
            (State::Element, Some(b',')) => {
                self.take();
                if self.peek()? == Some(b']') {
                    let hint = "remove the last comma";
                    return Err(self.fault("invalid JSON: a comma with nothing after it", hint));
                }
                Ok(true)
            }
            (State::Element, Some(b']')) => self.end_list(),
            (State::Element, Some(byte)) => {
                let found = char::from(byte);
                let problem = format!(
                    "invalid JSON: expected , or ] after element {}, found {found}",
                    self.number
                );
                Err(self.fault(problem, "write the list with a library for JSON"))
            }
            (State::Element, None) => {
                let problem = format!(
                    "the file ends in the middle of the list, after element {}",
                    self.number
                );
                Err(self.fault(problem, "copy the file again"))
            }
            (State::Object, Some(b',')) => {
                let problem = "a comma between objects that stand in no list";
                let hint = "put [ before the first and ] after the last, or remove the commas";
                Err(self.fault(problem, hint))
            }
            (State::Object, Some(_)) => Ok(true),
            (State::Nothing | State::Object | State::End, None) => Ok(false),
            (State::End, Some(_)) => {
                Err(self.fault("something follows the list", "one list a file is read"))
            }
        }
    }

    fn end_list(&mut self) -> Result<bool, TextError> {
        self.take();
        self.state = State::End;
        self.find()
    }

    /// Reads a value into `element`, without knowing whether it is valid.
    fn read_value(&mut self) -> Result<Ended, TextError> {
        self.element.clear();
        self.element.shrink_to(KEPT_BYTES);
        let mut scan = Scan::default();
        loop {
            let chunk = self.source.fill_buf();
            let chunk =
                chunk.map_err(|error| lift(error, &self.path, Position::Line(self.line)))?;
            if chunk.is_empty() {
                // What is in no bracket or string may end with the file.
                return Ok(if scan.is_bare() {
                    Ended::Whole
                } else {
                    Ended::Cut
                });
            }
            let used = scan.bytes(chunk);
            if self.element.len() + used > RECORD_BYTES_MAX {
                return Ok(Ended::TooLong);
            }
            self.element.extend_from_slice(&chunk[..used]);
            self.source.consume(used);
            if scan.ended {
                return Ok(Ended::Whole);
            }
        }
    }

    fn place(&self) -> Place {
        Place {
            path: self.path.clone(),
            position: Position::Element(self.number),
        }
    }

    fn read_object(&mut self) -> Result<Map<String, Value>, TextError> {
        let (line, column) = (self.line, self.column);
        self.number += 1;
        let ended = self.read_value()?;
        let start = Start {
            path: &self.path,
            line,
            column,
            element: Some(self.number),
        };
        let fields = match ended {
            Ended::Whole => json::object(&self.element, &start)?,
            Ended::Cut | Ended::TooLong => {
                if let Some(error) = json::before_end(&self.element, &start) {
                    return Err(error);
                }
                let fault = match ended {
                    Ended::TooLong => too_long(self.state),
                    _ => Fault::new(format!(
                        "the file ends in the middle of this element, which began on line {line}"
                    ))
                    .hint("copy the file again"),
                };
                return Err(fault.at(&self.path, Position::Element(self.number)));
            }
        };
        pass(&mut self.line, &mut self.column, &self.element);
        Ok(fields)
    }
}

impl Rows for List {
    fn next_record(&mut self) -> Result<Option<Record>, TextError> {
        if !self.find()? {
            return Ok(None);
        }
        let fields = self.read_object()?;
        if self.state == State::Object && self.number == 1 {
            let alone = self.peek()?.is_none();
            if let Some(name) = wrapped(&fields).filter(|_| alone) {
                return Err(wrapper(name).at(&self.path, Position::Whole));
            }
        }
        let place = self.place();
        Ok(Some(Record { place, fields }))
    }
}

/// Goes past bytes.
fn pass(line: &mut u64, column: &mut u64, bytes: &[u8]) {
    match bytes.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => {
            *line += breaks(bytes);
            *column = (bytes.len() - end - 1) as u64;
        }
        None => *column += bytes.len() as u64,
    }
}

/// Looks for the end of a value.
#[derive(Debug, Default)]
struct Scan {
    depth: usize,
    inside: Inside,
    ended: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Nothing,
    Value,
    String,
    /// After a backslash in a string.
    Escape,
}

impl Scan {
    /// Whether the value is a number or a word, which nothing closes.
    fn is_bare(&self) -> bool {
        self.depth == 0 && self.inside == Inside::Value
    }

    /// How many bytes belong to the value.
    fn bytes(&mut self, chunk: &[u8]) -> usize {
        let mut at = 0;
        while let Some(&byte) = chunk.get(at) {
            match self.inside {
                Inside::Escape => self.inside = Inside::String,
                Inside::String => {
                    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\');
                    let Some(plain) = chunk[at..].iter().position(is_end) else {
                        return chunk.len();
                    };
                    at += plain;
                    if chunk[at] == b'"' {
                        self.inside = Inside::Value;
                        self.ended = self.depth == 0;
                    } else {
                        self.inside = Inside::Escape;
                    }
                }
                Inside::Nothing | Inside::Value => {
                    let is_after =
                        matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
                    if self.is_bare() && is_after {
                        self.ended = true;
                        return at;
                    }
                    self.inside = Inside::Value;
                    match byte {
                        b'"' => self.inside = Inside::String,
                        b'{' | b'[' => self.depth += 1,
                        b'}' | b']' => {
                            self.depth = self.depth.saturating_sub(1);
                            self.ended = self.depth == 0;
                        }
                        _ => {}
                    }
                }
            }
            at += 1;
            if self.ended {
                return at;
            }
        }
        at
    }
}

/// The field that holds the records, of an object that is no record itself but is around them.
fn wrapped(fields: &Map<String, Value>) -> Option<&str> {
    /// Names of such fields, where there are others beside them.
    const NAMES: [&str; 8] = [
        "data",
        "rows",
        "records",
        "examples",
        "instances",
        "items",
        "samples",
        "train",
    ];
    // What people say in a conversation stands in lists of objects as well.
    const OF_TURNS: [&str; 4] = ["role", "from", "content", "value"];
    let mut lists = fields.iter().filter_map(|(name, value)| {
        let first = value.as_array()?.first()?.as_object()?;
        let is_turn = OF_TURNS.iter().any(|name| first.contains_key(*name));
        let is_around = fields.len() == 1 || NAMES.contains(&name.as_str());
        (is_around && !is_turn).then_some(name.as_str())
    });
    lists.next()
}

fn wrapper(name: &str) -> Fault {
    let fault = Fault::new(format!(
        "expected a list of objects, found an object with a list named \"{name}\""
    ));
    fault.hint(format!(
        "save the list by itself: json.dump(data[\"{name}\"], file)"
    ))
}

fn too_long(state: State) -> Fault {
    let fault = Fault::new(format!(
        "the element is longer than {} MiB",
        RECORD_BYTES_MAX >> 20
    ));
    fault.hint(match state {
        State::Object => {
            "a list of objects is expected; save a list that is within an object by itself: json.dump(data[\"data\"], file)"
        }
        _ => "split long texts into several examples",
    })
}
