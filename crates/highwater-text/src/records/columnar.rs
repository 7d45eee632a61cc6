//! Parquet files: a row is read from all columns, of each of which one page is in memory.
//!
//! Of the library for Parquet only what decodes levels and values sees bytes of the file, and only after they
//! were checked here: it takes memory for whatever number a file states. The footer and the headers of pages are
//! read here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use highwater_memory::{FileRead, Files};
use serde_json::{Map, Value};

use super::fault::lift;
use super::json::weight as json_weight;
use super::{Fault, Record, Rows};
use crate::{Place, Position, TextError, guarded};

mod assemble;
mod column;
mod footer;
mod header;
mod levels;
mod pages;
mod shape;
mod thrift;
mod unpack;
mod values;

use column::Column;
use footer::{Footer, Group};
use pages::{Input, Pages};
use shape::Shape;

/// What to do about a file that is broken.
const AGAIN: &str = "copy the file again, or write it again";

/// What may still be taken for a row.
struct Purse {
    texts: usize,
    weight: usize,
}

impl Purse {
    const FULL: Self = Self {
        texts: json_weight::TEXTS_MAX,
        weight: json_weight::WEIGHT_MAX,
    };

    /// Takes what a value needs, beside its text.
    fn spend(&mut self, weight: usize) -> Result<(), Fault> {
        self.weight = (self.weight.checked_sub(weight)).ok_or_else(json_weight::too_heavy)?;
        Ok(())
    }

    fn spend_text(&mut self, bytes: usize) -> Result<(), Fault> {
        self.texts = self.texts.checked_sub(bytes).ok_or_else(too_long)?;
        Ok(())
    }
}

/// A Parquet file.
pub(super) struct Parquet {
    path: PathBuf,
    input: Input,
    shape: Shape,
    groups: std::vec::IntoIter<Group>,
    columns: Vec<Column>,
    /// Rows of the group that are still to come.
    left: u64,
    /// Rows that came.
    row: u64,
    /// The column that is read.
    current: usize,
}

impl Parquet {
    pub(super) fn open(
        files: &dyn Files,
        path: &Path,
        read: &Arc<AtomicU64>,
    ) -> Result<Self, TextError> {
        let at = |error| lift(error, path, Position::Whole);
        let mut file = files.open(path)?;
        let footer = footer::read(&mut *file, read).map_err(at)?;
        let bytes = file.bytes();
        let Footer { schema, groups } = footer;
        let shape = shape::build(schema).map_err(|fault| at(fault.io()))?;
        let file: Box<dyn FileRead> = file;
        Ok(Self {
            path: path.to_owned(),
            input: Input::new(Arc::new(Mutex::new(file)), bytes, read),
            shape,
            groups: groups.into_iter(),
            columns: Vec::new(),
            left: 0,
            row: 0,
            current: 0,
        })
    }

    /// Starts a group of rows.
    fn start(&mut self, group: &Group) -> Result<(), Fault> {
        self.columns.clear();
        self.left = group.rows;
        let leaves = &self.shape.leaves;
        if group.rows == 0 {
            return Ok(());
        }
        if group.chunks.len() != leaves.len() {
            let (chunks, columns) = (group.chunks.len(), leaves.len());
            let fault = format!("a group of rows has {chunks} columns, the schema has {columns}");
            return Err(Fault::new(fault).hint(AGAIN));
        }
        for (leaf, chunk) in leaves.iter().zip(&group.chunks) {
            let pages = Pages::new(self.input.clone(), Arc::clone(leaf), chunk)?;
            self.columns.push(Column::new(Arc::clone(leaf), pages));
        }
        Ok(())
    }

    fn read_row(&mut self) -> io::Result<Map<String, Value>> {
        let mut purse = Purse::FULL;
        for (at, column) in self.columns.iter_mut().enumerate() {
            self.current = at;
            column.load(&mut purse)?;
        }
        let row = assemble::row(&self.shape, &mut self.columns, &mut purse);
        row.map_err(Fault::io)
    }

    /// What a panic comes to.
    fn panicked(&self, said: &str) -> Fault {
        let name = self.shape.leaves.get(self.current);
        let name = name.map_or("", |leaf| &leaf.name);
        // What is said may be as long as the data.
        let said: String = said.chars().take(200).collect();
        Fault::new(format!("column {name}: the data is damaged: {said}")).hint(AGAIN)
    }
}

impl Rows for Parquet {
    fn next_record(&mut self) -> Result<Option<Record>, TextError> {
        while self.left == 0 {
            let Some(group) = self.groups.next() else {
                self.columns.clear();
                return Ok(None);
            };
            let started = self.start(&group);
            started.map_err(|fault| fault.at(&self.path, Position::Row(self.row + 1)))?;
        }
        (self.left, self.row) = (self.left - 1, self.row + 1);
        let position = Position::Row(self.row);
        let row = guarded(|| Ok(self.read_row()));
        let row = row.unwrap_or_else(|panic| Err(self.panicked(&panic).io()));
        let fields = row.map_err(|error| lift(error, &self.path, position))?;
        let place = Place {
            path: self.path.clone(),
            position,
        };
        Ok(Some(Record { place, fields }))
    }
}

fn too_long() -> Fault {
    let problem = format!(
        "the row is longer than {} MiB",
        json_weight::TEXTS_MAX >> 20
    );
    Fault::new(problem).hint("split long texts into several rows")
}
