//! Room for bytes of state: what has to go where there is none.

use crate::engine::Engine;
use crate::engine::state::State;
use crate::store::Storage;
use crate::{Error, Result};
use highwater_graph::{Category, CellId, Location, ValueId};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine {
    /// Results that outlive the plan get their storage first: it counts against the budget. What
    /// earlier plans of the step left in the arena has to go if it is in the way.
    pub(crate) fn give_storage(
        &self,
        state: &mut State,
        missing: &BTreeSet<ValueId>,
    ) -> Result<()> {
        for &id in missing {
            let value = state.pending.graph.value(id);
            let (bytes, category) = (value.spec.bytes(), value.category);
            // Gradients become cells, which may move below memory.
            let alloc = || match category {
                Category::Gradient if self.is_movable(bytes) => {
                    self.0.store.alloc_room(bytes, "a gradient")
                }
                Category::Gradient => self.0.store.alloc(bytes, "a gradient"),
                _ => Ok(self.0.store.alloc(bytes, "a kept value")?.of_value()),
            };
            let given = self.with_room(state, |_| alloc());
            let given = given.and_then(|mut storage| {
                self.move_out(state, id, &mut storage)?;
                self.0.store.keep_below(state.residents_end());
                Ok(state.memory.storages.insert(id, Arc::new(storage)))
            });
            given?;
        }
        Ok(())
    }

    /// Before what is pending is posed: what it writes and files have is read into memory.
    pub(crate) fn own_written(&self, state: &mut State) -> Result<()> {
        if !self.0.tiers.files {
            return Ok(());
        }
        let nodes = state.pending.graph.nodes().iter();
        let written: BTreeSet<CellId> = nodes
            .flat_map(|node| node.writes.iter().map(|write| write.0))
            .collect();
        for &id in &written {
            self.with_room(state, |state| {
                let (cells, graph) = state.cells();
                cells.own(&self.0.store, graph, id)
            })?;
        }
        Ok(())
    }

    /// Takes bytes for state from outside an evaluation: waits for one that another thread runs,
    /// whose arena must stay where it is.
    pub(crate) fn alloc(&self, bytes: u64, what: &'static str) -> Result<Storage> {
        self.alloc_by(|| self.0.store.alloc(bytes, what))
    }

    /// Evaluates what is pending where that is all without history and its inputs take much of the budget: sums of an
    /// evaluation, say, which would keep each batch until somebody reads them.
    fn evaluate_sums(&self, state: &mut State) -> Result<()> {
        let pending = &state.pending;
        let mut values = pending.graph.values().iter();
        if pending.graph.nodes().is_empty()
            || !pending.grads.is_empty()
            || values.any(|value| value.requires_grad)
            || pending.has_effects_left()
        {
            return Ok(());
        }
        let storages = state.memory.storages.values();
        let held: u64 = storages.map(|storage| storage.bytes()).sum();
        if held < self.0.store.budget() / 4 {
            return Ok(());
        }
        let targets = state.pending.kept_values().into_iter().collect();
        self.evaluate_some(state, &targets, None, Location::caller())
    }

    pub(crate) fn alloc_by(&self, alloc: impl Fn() -> Result<Storage>) -> Result<Storage> {
        let mut state = self.lock();
        self.evaluate_sums(&mut state)?;
        match self.with_room(&mut state, |_| alloc()) {
            // What pending graphs hold that nobody can want any more makes room.
            Err(Error::State { .. }) => {
                state.end_forsaken(&self.0.dropped_cells, Location::caller());
                state.compact(None);
                alloc()
            }
            other => other,
        }
    }

    /// Takes bytes for state: while there is no room, what earlier plans of the step left in the arena goes,
    /// then one cell after the other that may wait below memory.
    pub(crate) fn with_room<T>(
        &self,
        state: &mut State,
        mut take: impl FnMut(&mut State) -> Result<T>,
    ) -> Result<T> {
        loop {
            match take(state) {
                Err(Error::State { bytes, .. })
                    if self.give_up_residents(state)
                        || self.make_room(state, self.lacking(bytes), |_| false)? => {}
                other => return other,
            }
        }
    }

    /// How many bytes of state are too many for so many more.
    pub(crate) fn lacking(&self, bytes: u64) -> u64 {
        let store = &self.0.store;
        let wanted = store.state_bytes().saturating_add(bytes);
        wanted.saturating_sub(store.budget()).max(1)
    }

    /// Forgets what earlier plans of the step left in the arena. Answers whether that makes room.
    pub(crate) fn give_up_residents(&self, state: &mut State) -> bool {
        let any = self.0.store.kept() > 0;
        if any {
            state.give_up_residents();
            self.0.store.keep_below(0);
        }
        any
    }

    /// A value that is to have storage of its own, but whose node ran in an earlier plan of the
    /// step: it is copied if it is still in the arena; otherwise its node counts as not run.
    fn move_out(&self, state: &mut State, id: ValueId, storage: &mut Storage) -> Result<()> {
        let Some((node, _)) = state.pending.graph.value(id).producer else {
            return Ok(());
        };
        if let Some(offset) = state.pending.progress.residents.remove(&id) {
            if !self.0.dry {
                storage.copy_of_planned(offset)?;
            }
        } else if state.pending.progress.done.remove(&node) {
            for output in &state.pending.graph.node(node).outputs {
                state.pending.progress.residents.remove(output);
            }
        }
        Ok(())
    }
}
