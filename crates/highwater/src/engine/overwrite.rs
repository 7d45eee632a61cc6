//! Writes by hand: what is pending and reads a cell is computed before user code writes it.

use crate::Result;
use crate::engine::Engine;
use crate::engine::state::State;
use highwater_graph::{CellId, Location, Node, Source};
use std::sync::Weak;

impl Engine {
    /// Readies a cell to be written by user code, as a step readies those that it writes: pending gradients and writes
    /// are evaluated, and of the live handles that read the cell those that are small or marked. Nodes that read it and
    /// are left are stale.
    pub(crate) fn overwrite(
        &self,
        state: &mut State,
        id: CellId,
        location: Location,
    ) -> Result<()> {
        if !is_used(state, id) {
            return Ok(());
        }
        // What nobody holds any more does not count.
        state.compact(None);
        if !is_used(state, id) {
            return Ok(());
        }
        self.keep_read_cells(state, |cell| cell == id, location)?;
        state.pending.graph.overwrite(id, location);
        self.evaluate_effects(state, None, location)?;
        state.compact(None);
        Ok(())
    }

    /// Evaluates pending writes of a cell, for user code to read it.
    pub(crate) fn evaluate_writes(
        &self,
        state: &mut State,
        id: CellId,
        location: Location,
    ) -> Result<()> {
        if state.pending.graph.has_pending_writes(id) {
            self.evaluate_effects(state, None, location)?;
            state.compact(None);
        }
        Ok(())
    }
}

/// Whether nodes read or write a cell, or handles wait for what it holds.
fn is_used(state: &State, id: CellId) -> bool {
    let pending = &state.pending;
    let uses = |node: &Node| {
        let mut inputs = node.inputs.iter();
        inputs.any(|input| matches!(input.source, Source::Cell(read, _) if read == id))
    };
    let mut handles = pending.handles.iter().filter_map(Weak::upgrade);
    pending.graph.nodes().iter().any(uses)
        || handles.any(|handle| {
            let operand = handle.pending_cell(pending.generation);
            operand.is_some_and(
                |operand| matches!(operand.source, Source::Cell(read, _) if read == id),
            )
        })
}
