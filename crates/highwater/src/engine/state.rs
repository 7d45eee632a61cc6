//! What of an engine changes.

use crate::engine::recordings::{Random, Recordings};
use crate::pending::Pending;
use crate::problem::clock::Clock;
use crate::problem::disk_clock::DiskClock;
use crate::problem::plan_cache::PlanCache;
use crate::report::Record;
use crate::report::told::Told;
use crate::store::cells::{CellBytes, CellStore};
use crate::store::memory::Memory;
use crate::{Error, Result};
use highwater_graph::Location;
use highwater_graph::{Category, CellId, Graph, Operand, ValueId};
use std::collections::BTreeMap;

/// Everything that changes: what is to be computed, who has bytes, what helps to plan, and what was
/// said about it.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Of the recording at hand.
    pub(crate) pending: Pending,
    pub(crate) random: Random,
    pub(crate) recordings: Recordings,
    pub(crate) memory: Memory,
    pub(crate) planning: Planning,
    pub(crate) record: Record,
    /// Why nothing can be computed any more: a step stopped halfway.
    pub(crate) poisoned: Option<String>,
}

/// What helps to plan, from one evaluation to the next: earlier answers, and what runs took.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    pub(crate) cache: PlanCache<Told>,
    pub(crate) clock: Clock,
    pub(crate) disk_clock: DiskClock,
    /// Whether pointwise nodes are merged before they are planned.
    pub(crate) fuses: bool,
}

impl Planning {
    /// Plans are made by the rates that were given, whatever runs take.
    pub(crate) fn keep_to_rates(&mut self) {
        self.clock.plan_by_rates();
        self.disk_clock.stop();
    }
}

impl State {
    /// The cells, and the graph that knows their names.
    pub(crate) fn cells(&mut self) -> (&mut CellStore, &Graph) {
        (&mut self.memory.cells, &self.pending.graph)
    }

    pub(crate) fn forget(&mut self, dropped: &[CellId]) {
        for id in dropped {
            self.pending.graph.remove_cell(*id);
            self.memory.cells.remove(*id);
            self.pending.grads.remove(id);
            self.drop_grads(&[*id]);
        }
    }

    /// Forgets evaluated gradients at once.
    pub(crate) fn drop_grads(&mut self, parameters: &[CellId]) {
        for parameter in parameters {
            if let Some(cell) = self.memory.grads.remove(parameter) {
                self.pending.graph.remove_cell(cell);
                self.memory.cells.remove(cell);
            }
        }
    }

    /// What messages call the gradient of a parameter.
    pub(crate) fn grad_name(&self, parameter: CellId) -> String {
        let cell = self.pending.graph.cell(parameter);
        cell.map_or_else(String::new, |cell| format!("{}.grad", cell.name))
    }

    /// Evaluated gradients become cells, so that later backward passes can add to them in place.
    /// What is pending and reads one reads the cell from then on, as it is now.
    pub(crate) fn adopt_grads(&mut self) -> Result<()> {
        let mut cells = BTreeMap::new();
        for (parameter, grad) in std::mem::take(&mut self.pending.grads) {
            let name = self.grad_name(parameter);
            let storages = &mut self.memory.storages;
            let found = grad
                .value()
                .and_then(|id| Some((id, storages.remove(&id)?)));
            let Some((id, storage)) = found else {
                return Err(Error::Internal(format!("{name} was not evaluated")));
            };
            let graph = &mut self.pending.graph;
            let cell = graph.add_cell(&name, grad.spec, Category::Gradient, false);
            let bytes = CellBytes::in_memory(storage);
            self.memory.cells.insert(cell, bytes);
            self.memory.grads.insert(parameter, cell);
            cells.insert(id, cell);
        }
        self.pending.become_cells(&cells);
        Ok(())
    }

    /// As [`Pending::overwritten`].
    pub(crate) fn overwritten(&self) -> Vec<bool> {
        self.pending.overwritten(&self.memory.storages)
    }

    /// Whether a value is computed, through any number of nodes, from what pending writes write.
    pub(crate) fn awaits_writes(&self, id: ValueId) -> bool {
        let storages = &self.memory.storages;
        let producer = self.pending.graph.value(id).producer;
        producer.is_some_and(|(node, _)| {
            !storages.contains_key(&id) && self.pending.awaiting(storages)[node.index()]
        })
    }

    /// As [`Pending::compact`].
    pub(crate) fn compact(&mut self, root: Option<&Operand>) -> Option<Operand> {
        self.pending.compact(&mut self.memory.storages, root)
    }

    /// As [`Pending::end`].
    pub(crate) fn end(&mut self, location: Location) {
        let next = self.recordings.next_generation();
        self.pending.end(&mut self.memory.storages, location, next);
        self.part();
    }

    /// Where the highest value ends that a recording has in the arena.
    pub(crate) fn residents_end(&self) -> u64 {
        self.pending
            .residents_end()
            .max(self.recordings.residents_end())
    }

    /// As [`Pending::give_up_residents`], in all recordings.
    pub(crate) fn give_up_residents(&mut self) -> bool {
        let parked = self.recordings.give_up_residents();
        self.pending.give_up_residents(&self.memory.storages) || parked
    }
}
