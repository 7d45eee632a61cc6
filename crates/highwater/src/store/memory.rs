//! What is in memory, or below it, for an engine: cells, values that have storage of their own, and
//! what is set aside for everything else.

use crate::store::Storage;
use crate::store::cells::CellStore;
use crate::store::lending::Lending;
use highwater_graph::{CellId, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Storage of the pending graph's values that have their own.
pub(crate) type Storages = BTreeMap<ValueId, Arc<Storage>>;

/// Who has bytes.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) storages: Storages,
    /// The bytes of the cells. Kept here too until no pending node can read a dropped one.
    pub(crate) cells: CellStore,
    /// Evaluated gradients: parameter to the cell that holds its gradient.
    pub(crate) grads: BTreeMap<CellId, CellId>,
    /// Cells whose bytes user code has in hand.
    pub(crate) lending: Lending,
    /// What the process uses next to its arenas.
    pub(crate) reserved: Reserved,
}

/// What the process uses next to its arenas, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Reserved {
    /// Measured when the engine was built, with headroom, or as its builder said.
    pub(crate) at_first: u64,
    /// For the heap that the graph at hand will use.
    pub(crate) for_graph: u64,
    /// For what the program will allocate itself.
    pub(crate) aside: u64,
    /// Measured since, where that was more than all of it.
    pub(crate) measured: u64,
}

impl Reserved {
    /// The reserve.
    pub(crate) fn bytes(&self) -> u64 {
        let expected = self.at_first.saturating_add(self.for_graph);
        expected.saturating_add(self.aside).max(self.measured)
    }
}

impl Memory {
    /// Takes back the storage that was given to values which are not computed after all.
    pub(crate) fn take_back(&mut self, values: &BTreeSet<ValueId>) {
        for id in values {
            self.storages.remove(id);
        }
    }
}
