//! Bytes of cells in the hands of user code: without the engine's lock, so that it may use the engine.
//!
//! What is lent is noted in the state. An evaluation that would write what is read, or read what is written, waits
//! until other threads have given it back, and is refused within a closure of its own thread. Cells that somebody
//! holds stay where they are.

#![expect(unsafe_code, reason = "the notes here are what lends bytes out")]

use crate::engine::Engine;
use crate::engine::lock::Locked;
use crate::engine::state::State;
use crate::error::usage_error;
use crate::store::Storage;
use crate::store::lending::{CellUses, Found, Note, Use};
use crate::store::memory::Memory;
use crate::{Error, Result};
use highwater_graph::{CellId, Location, Source, Spec};
use highwater_ops::{Element, View};
use std::sync::Arc;

/// Fills the bytes of a new cell.
pub(crate) type Fill<'a> = &'a mut dyn FnMut(&mut [u8]);

/// A note that the bytes of a cell are lent, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    engine: &'a Engine,
    note: Note,
}

/// What is wrong with an evaluation inside a closure over what it needs.
const IN_USE: &str = "bytes of a parameter are in use by a closure of with_bytes(), with_bytes_mut() or \
                      with_values_mut(): evaluate before or after it";

impl Engine {
    /// Notes that user code uses the bytes of a cell: once no other thread does, unless both read.
    ///
    /// # Errors
    /// [`Error::Usage`] where this thread does.
    pub(crate) fn lend<'e>(
        &'e self,
        state: Locked<'e>,
        id: CellId,
        how: Use,
        location: Location,
    ) -> Result<(Locked<'e>, Lent<'e>)> {
        let wants = |_: &State, note: &Note| {
            note.cell == id && (note.how == Use::Write || how == Use::Write)
        };
        let message = "the bytes of the parameter are in use by another closure";
        let mut state = self.once_free(state, wants, message, location)?;
        let note = state.memory.lending.lend(id, how);
        Ok((state, Lent { engine: self, note }))
    }

    /// Waits until no other thread has the bytes of a cell in hand that what is pending reads or writes, or that
    /// of `also`, to write it.
    ///
    /// # Errors
    /// [`Error::Usage`] where this thread has.
    pub(crate) fn once_unlent<'e>(
        &'e self,
        state: Locked<'e>,
        also: Option<CellId>,
        location: Location,
    ) -> Result<Locked<'e>> {
        let wants = |state: &State, note: &Note| {
            let mut uses = state.cell_uses();
            uses.read.extend(also);
            uses.meets(note)
        };
        self.once_free(state, wants, IN_USE, location)
    }

    fn once_free<'e>(
        &'e self,
        mut state: Locked<'e>,
        wants: impl Fn(&State, &Note) -> bool,
        message: &'static str,
        location: Location,
    ) -> Result<Locked<'e>> {
        while !state.memory.lending.is_empty() {
            let mut lending = std::mem::take(&mut state.memory.lending);
            let found = lending.find(|note| wants(&state, note));
            state.memory.lending = lending;
            match found {
                Found::Free => break,
                Found::Busy => state = self.wait(state),
                Found::Never => return Err(usage_error(message, location)),
            }
        }
        Ok(state)
    }

    /// The storage of a cell's bytes; of a copy, if they are below memory.
    pub(crate) fn copy_of(&self, state: &mut State, id: CellId) -> Result<Arc<Storage>> {
        let store = &self.0.store;
        self.with_room(state, |state| {
            state.memory.cells.copy(store, &state.pending.graph, id)
        })
    }
}

impl Lent<'_> {
    /// Calls a function with the bytes.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let storage = self
            .engine
            .copy_of(&mut self.engine.lock(), self.note.cell)?;
        // SAFETY: a copy is of nobody else. What is the cell's own is written by kernels and by other user
        // code alone, and this note keeps both from it.
        Ok(read(unsafe { storage.shared() }))
    }

    /// Calls a function with the bytes, to write them.
    pub(crate) fn write<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        if self.note.how != Use::Write {
            return Err(Error::Internal(
                "bytes that are lent to be read are written".into(),
            ));
        }
        let (engine, id) = (self.engine, self.note.cell);
        let mut state = engine.lock();
        // What a step left half done is to be replaced.
        let (store, lost) = (&engine.0.store, state.poisoned.is_some());
        let copy = |state: &mut State| {
            let cells = &state.memory.cells;
            cells.copy_to_write(store, &state.pending.graph, id, lost)
        };
        let storage = engine.with_room(&mut state, copy)?;
        state.memory.cells.leave_file(id);
        drop(state);
        // SAFETY: as in `read`; and this note is the only one of the cell, and keeps kernels from reading it.
        let answer = write(unsafe { storage.shared_mut() });
        let mut state = engine.lock();
        let (cells, graph) = state.cells();
        cells.write_back(graph, id, storage)?;
        Ok(answer)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.engine.lock();
        state.memory.lending.give_back(&self.note);
        drop(state);
        self.engine.0.given_back.notify_all();
    }
}

impl State {
    /// That nobody has the bytes of a cell in hand that what is pending reads or writes.
    pub(crate) fn check_unlent(&self, location: Location) -> Result<()> {
        let lending = &self.memory.lending;
        if lending.is_empty() || !lending.is_in_the_way(&self.cell_uses()) {
            return Ok(());
        }
        Err(usage_error(IN_USE, location))
    }

    /// The cells that pending nodes read and write.
    fn cell_uses(&self) -> CellUses {
        let mut uses = CellUses::default();
        for (id, node) in self.pending.graph.numbered() {
            if self.pending.progress.done.contains(&id) {
                continue;
            }
            uses.written.extend(node.writes.iter().map(|write| write.0));
            uses.read
                .extend(node.inputs.iter().filter_map(|input| match input.source {
                    Source::Cell(id, _) => Some(id),
                    Source::Value(_) => None,
                }));
        }
        uses
    }
}

impl Memory {
    /// The elements of a tensor in this storage, in the order of its shape. What is a cell's must be lent to nobody who
    /// writes.
    ///
    /// # Errors
    /// [`Error::Usage`] for another element type.
    pub(crate) fn elements<T: Element>(
        storage: &Storage,
        spec: &Spec,
        location: Location,
    ) -> Result<Vec<T>> {
        // SAFETY: kernels write storage under the lock that the caller holds to have this, and user code does
        // not write it, as the caller has seen.
        let view = View::read(unsafe { storage.shared() }, spec);
        let elements = view
            .storage::<T>()
            .map_err(|error| usage_error(error.to_string(), location))?;
        let positions = spec.layout.positions();
        Ok(positions.map(|position| elements[position]).collect())
    }
}
