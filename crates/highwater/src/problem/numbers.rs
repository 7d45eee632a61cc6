//! The numbers that values and cells of a graph have in a problem.

use crate::problem::compiled::Origin;
use highwater_graph::{BuildMixer, CellId, Graph, ValueId, Version};
use highwater_plan as plan;
use std::collections::BTreeMap;

/// Numbers values and cells in the order in which a problem meets them, and versions from the one in
/// memory, so that every step of a loop poses the same problem.
#[derive(Default)]
pub(super) struct Numbers {
    /// The graph's values and cells, by number.
    pub(super) order: Vec<Origin>,
    /// The problem's number of each of the graph's values, once it has one.
    values: Vec<Option<plan::ValueId>>,
    pub(super) cell_values: BTreeMap<CellId, plan::ValueId>,
    #[expect(clippy::disallowed_types, reason = "its order is never read")]
    cells: std::collections::HashMap<CellId, plan::CellId, BuildMixer>,
}

impl Numbers {
    pub(super) fn new(graph: &Graph) -> Self {
        let values = graph.values().len();
        Self {
            order: Vec::with_capacity(values),
            values: vec![None; values],
            ..Self::default()
        }
    }

    pub(super) fn value(&mut self, id: ValueId) -> plan::ValueId {
        *self.values[id.index()].get_or_insert_with(|| {
            self.order.push(Origin::Value(id));
            plan::ValueId::new(self.order.len() - 1)
        })
    }

    /// The bytes of a cell, as a value.
    pub(super) fn cell_value(&mut self, id: CellId) -> plan::ValueId {
        *self.cell_values.entry(id).or_insert_with(|| {
            self.order.push(Origin::Cell(id));
            plan::ValueId::new(self.order.len() - 1)
        })
    }

    pub(super) fn cell(
        &mut self,
        graph: &Graph,
        id: CellId,
        version: Version,
    ) -> (plan::CellId, plan::Version) {
        let next = plan::CellId::new(self.cells.len());
        let number = *self.cells.entry(id).or_insert(next);
        (number, version.since(graph.evaluated(id)))
    }
}
