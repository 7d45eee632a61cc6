//! One graph behind another: what two threads recorded becomes one graph when a tensor of one meets the other's.

use super::{CellId, Cells, Graph, Node, NodeId, Operand, Source, ValueId, Version};
use std::collections::BTreeMap;

/// What nodes and values are called in a graph that others were added to.
#[derive(Debug)]
pub struct Joined {
    first_node: usize,
    values: Vec<ValueId>,
    /// By how much the versions rise that were there.
    own: BTreeMap<CellId, u32>,
    /// Versions of what came: from which on it is one that comes after all writes that were there, and of what
    /// version that is the first.
    later: BTreeMap<CellId, (Version, Version)>,
}

impl Joined {
    /// A node that came.
    pub fn node(&self, id: NodeId) -> NodeId {
        NodeId::new(self.first_node + id.index())
    }

    /// A value that came.
    ///
    /// # Panics
    /// If `id` is not of the graph that came.
    pub fn value(&self, id: ValueId) -> ValueId {
        self.values[id.index()]
    }

    /// Whether operands that were there have another version now.
    pub fn changes_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// Renames an operand that was there.
    pub fn follow_own(&self, operand: &mut Operand) {
        if let Source::Cell(id, version) = &mut operand.source
            && let Some(&writes) = self.own.get(id)
        {
            *version = version.after(writes);
        }
    }

    /// Renames an operand that came.
    pub fn follow(&self, operand: &mut Operand) {
        match &mut operand.source {
            Source::Value(id) => *id = self.value(*id),
            Source::Cell(id, version) => *version = self.later_version(*id, *version),
        }
    }

    fn later_version(&self, id: CellId, version: Version) -> Version {
        match self.later.get(&id) {
            Some(&(from, first)) if version >= from => first.after(version.since(from)),
            _ => version,
        }
    }
}

impl Graph {
    /// Takes the cells, for another graph to read and write.
    pub fn take_cells(&mut self) -> Cells {
        std::mem::take(&mut self.cells)
    }

    /// Gives the graph the cells of another.
    pub fn give_cells(&mut self, cells: Cells) {
        self.cells = cells;
    }

    /// A graph without nodes on the same backend; it has no cells.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self {
            backend: self.backend.clone(),
            ..Self::default()
        }
    }

    /// Adds the nodes and values of another graph behind those that are here: what they read of cells is what the
    /// nodes here leave. Values in `same` are known here by another name.
    ///
    /// # Panics
    /// If `same` names a value that neither graph has.
    pub fn join(&mut self, other: Self, same: &BTreeMap<ValueId, ValueId>) -> Joined {
        let first_node = self.nodes.len();
        let mut values = Vec::with_capacity(other.values.len());
        for (id, mut value) in other.values.into_iter().enumerate() {
            if let Some(&known) = same.get(&ValueId::new(id)) {
                values.push(known);
                continue;
            }
            let producer = value.producer.take();
            value.producer = producer.map(|(node, i)| (NodeId::new(first_node + node.index()), i));
            values.push(ValueId::new(self.values.len()));
            self.values.push(value);
        }
        let mut joined = Joined {
            first_node,
            values,
            own: BTreeMap::new(),
            later: BTreeMap::new(),
        };
        // What came was overwritten so often: those versions stay below all that are here.
        for (&id, theirs) in &other.versions.0 {
            let overwritten = theirs.evaluated.since(Version::default());
            if overwritten > 0 {
                joined.own.insert(id, overwritten);
            }
        }
        self.follow(|operand| joined.follow_own(operand));
        for (id, before) in self.nodes.iter_mut().flat_map(|node| &mut node.writes) {
            if let Some(&writes) = joined.own.get(id) {
                *before = before.after(writes);
            }
        }
        for (id, &writes) in &joined.own {
            let written = self.versions.0.entry(*id).or_default();
            written.version = written.version.after(writes);
            written.evaluated = written.evaluated.after(writes);
        }
        for (&id, written) in &self.versions.0 {
            let from = other.versions.0.get(&id).copied().unwrap_or_default();
            joined.later.insert(id, (from.evaluated, written.version));
        }
        for (id, theirs) in other.versions.0 {
            let version = joined.later_version(id, theirs.version);
            let written = self.versions.0.entry(id).or_default();
            written.version = version;
            written.at = theirs.at.or(written.at);
        }
        for mut node in other.nodes {
            let Node {
                inputs,
                outputs,
                writes,
                ..
            } = &mut node;
            for input in inputs {
                joined.follow(input);
            }
            for id in outputs {
                *id = joined.value(*id);
            }
            for (id, before) in writes {
                *before = joined.later_version(*id, *before);
            }
            self.nodes.push(node);
        }
        joined
    }
}
