//! New cells: where their bytes are at first.

use crate::engine::Engine;
use crate::engine::lent::Fill;
use crate::engine::state::State;
use crate::store::Storage;
use crate::store::cells::CellBytes;
use crate::{Error, Result};
use highwater_graph::{Category, CellId, Spec};
use highwater_memory::FilePart;
use std::sync::Arc;

impl Engine {
    /// Makes a cell of bytes that `fill` gives; of zeros without it. Cells that may move go below
    /// memory once they take half of the budget, as long as there is room.
    pub(crate) fn add_cell(
        &self,
        name: &str,
        spec: Spec,
        category: Category,
        requires_grad: bool,
        fill: Option<Fill<'_>>,
    ) -> Result<CellId> {
        let bytes = spec.bytes();
        let movable = self.is_movable(bytes);
        if movable && fill.is_none() {
            let mut state = self.lock();
            let id = if self.0.tiers.files && category == Category::Parameter {
                // A file is to have them.
                let id = state.pending.graph.add_cell(name, spec, category, false);
                state.memory.cells.insert(id, CellBytes::nowhere(bytes));
                id
            } else {
                self.add_movable_zeros(&mut state, name, spec, category)?
            };
            if let Some(cell) = state.pending.graph.cell_mut(id) {
                cell.requires_grad = requires_grad;
            }
            return Ok(id);
        }
        let crowded = movable && self.is_crowded_by(bytes);
        let what = crate::engine::what(category);
        let mut storage = self.alloc_cell(name, bytes, what, movable)?;
        if let Some(fill) = fill
            && !self.0.dry
        {
            fill(storage.bytes_mut());
        }
        let mut state = self.lock();
        let id = state
            .pending
            .graph
            .add_cell(name, spec, category, requires_grad);
        state
            .memory
            .cells
            .insert(id, CellBytes::in_memory(Arc::new(storage)));
        if crowded {
            let (cells, graph) = state.cells();
            match cells.move_below(graph, id) {
                Err(error) if !error.is_full() => {
                    state.forget(&[id]);
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(id)
    }

    /// Makes a cell of zeros that may move: moments, gradients. Below memory nothing is written for it, and
    /// it is there without ever having been in memory.
    pub(crate) fn add_movable_zeros(
        &self,
        state: &mut State,
        name: &str,
        spec: Spec,
        category: Category,
    ) -> Result<CellId> {
        let bytes = spec.bytes();
        let what = crate::engine::what(category);
        let in_memory = || {
            let storage = self.0.store.alloc_room(bytes, what)?;
            Ok(CellBytes::in_memory(Arc::new(storage)))
        };
        let (cells, graph) = state.cells();
        let mut below = || {
            let place = cells.take(graph, bytes, name)?;
            Ok(CellBytes::zeros(bytes, place))
        };
        let is_full = |error: &Error| error.is_full();
        let found = if self.0.tiers.are_files_alone() {
            in_memory()
        } else if self.is_crowded_by(bytes) {
            below().or_else(|full| in_memory().map_err(|e| if is_full(&e) { full } else { e }))
        } else {
            in_memory().or_else(|e| if is_full(&e) { below() } else { Err(e) })
        };
        let cell = match found {
            // What files have makes room for what nothing else has.
            Err(full) if full.is_full() && self.0.tiers.files => self
                .with_room(state, |_| in_memory())
                .map_err(|_: Error| full),
            found => found,
        }?;
        let id = state.pending.graph.add_cell(name, spec, category, false);
        state.memory.cells.insert(id, cell);
        Ok(id)
    }

    /// Says that a part of a file has the bytes of a cell. They are read, into memory if half of the budget has room
    /// for them: the next plan says where they belong.
    pub(crate) fn attach(&self, state: &mut State, id: CellId, part: FilePart) -> Result<()> {
        let (cells, graph) = state.cells();
        let in_memory = !self.is_crowded_by(part.bytes());
        cells.attach(&self.0.store, graph, (id, part), in_memory)
    }

    /// Storage for a value that is a cell afterwards.
    fn alloc_cell(
        &self,
        name: &str,
        bytes: u64,
        what: &'static str,
        movable: bool,
    ) -> Result<Storage> {
        if !movable {
            return self.alloc_by(|| self.0.store.alloc(bytes, what));
        }
        let given = self.alloc_by(|| self.0.store.alloc_room(bytes, what));
        given.map_err(|error| match self.0.tiers.take(bytes, name) {
            // Others would have made room in memory, had there been any below.
            Err(full) if error.is_full() && !self.0.tiers.are_files_alone() => full,
            _ => error,
        })
    }
}
