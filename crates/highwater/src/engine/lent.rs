//! Bytes of cells in the hands of user code: without the engine's lock, so that it may use the engine.
//!
//! What is lent is noted in the state. Evaluations refuse to start where they would write what is read, or
//! read what is written (`Memory::check_not_borrowed`), and cells that somebody holds stay where they are.

#![expect(unsafe_code, reason = "the notes here are what lends bytes out")]

use crate::engine::Engine;
use crate::engine::state::State;
use crate::error::usage_error;
use crate::store::Storage;
use crate::store::memory::Memory;
use crate::{Error, Result};
use highwater_graph::{CellId, Location, Spec};
use highwater_ops::{Element, View};
use std::sync::Arc;

/// Fills the bytes of a new cell.
pub(crate) type Fill<'a> = &'a mut dyn FnMut(&mut [u8]);

/// How user code has the bytes of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

impl Use {
    /// How it is noted: readers are counted, a writer is alone.
    fn count(self) -> isize {
        match self {
            Self::Read => 1,
            Self::Write => -1,
        }
    }
}

/// A note that the bytes of a cell are lent, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    engine: &'a Engine,
    id: CellId,
    how: Use,
}

impl Engine {
    /// Notes that user code uses the bytes of a cell.
    ///
    /// # Errors
    /// [`Error::Usage`] where other user code does, unless both read.
    pub(crate) fn lend(
        &self,
        state: &mut State,
        id: CellId,
        how: Use,
        location: Location,
    ) -> Result<Lent<'_>> {
        let borrowed = state.memory.borrowed.entry(id).or_default();
        if *borrowed < 0 || *borrowed > 0 && how == Use::Write {
            let message = "the bytes of the parameter are in use by another closure";
            return Err(usage_error(message, location));
        }
        *borrowed += how.count();
        Ok(Lent {
            engine: self,
            id,
            how,
        })
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
        let storage = self.engine.copy_of(&mut self.engine.lock(), self.id)?;
        // SAFETY: a copy is of nobody else. What is the cell's own is written by kernels and by other user
        // code alone, and this note keeps both from it.
        Ok(read(unsafe { storage.shared() }))
    }

    /// Calls a function with the bytes, to write them.
    pub(crate) fn write<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        if self.how != Use::Write {
            return Err(Error::Internal(
                "bytes that are lent to be read are written".into(),
            ));
        }
        let (engine, id) = (self.engine, self.id);
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
        let borrowed = &mut state.memory.borrowed;
        let count = borrowed.entry(self.id).or_default();
        *count -= self.how.count();
        if *count == 0 {
            borrowed.remove(&self.id);
        }
    }
}

impl Memory {
    /// The elements of a tensor in this storage, that of a cell maybe, in the order of its shape.
    ///
    /// # Errors
    /// [`Error::Usage`] for another element type, and while user code writes them.
    pub(crate) fn elements<T: Element>(
        &self,
        (storage, cell): (&Storage, Option<CellId>),
        spec: &Spec,
        location: Location,
    ) -> Result<Vec<T>> {
        let count = cell.and_then(|id| self.borrowed.get(&id));
        if count.is_some_and(|&count| count < 0) {
            let message = "a closure is writing the bytes of this parameter";
            return Err(usage_error(message, location));
        }
        // SAFETY: kernels write storage under the lock that the caller holds to have this, and user code does
        // not write it, as was just seen.
        let view = View::read(unsafe { storage.shared() }, spec);
        let elements = view
            .storage::<T>()
            .map_err(|error| usage_error(error.to_string(), location))?;
        let positions = spec.layout.positions();
        Ok(positions.map(|position| elements[position]).collect())
    }
}
