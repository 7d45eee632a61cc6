//! What of a graph somebody needs, and dropping the rest.

use super::{Graph, NodeId, Operand, Source, ValueId};
use std::collections::{BTreeMap, BTreeSet};

impl Graph {
    /// Which nodes make `roots`, or are effects that are `pending`, or make what those read. What
    /// makes a value that `ends` the way back is left out.
    pub fn reachable(
        &self,
        roots: &BTreeSet<ValueId>,
        pending: impl Fn(NodeId) -> bool,
        ends: impl Fn(ValueId) -> bool,
    ) -> Vec<bool> {
        let mut kept = vec![false; self.nodes.len()];
        let producer = |id: ValueId| self.value(id).producer.filter(|_| !ends(id));
        for (node, _) in roots.iter().filter_map(|&root| producer(root)) {
            kept[node.index()] = true;
        }
        for (id, node) in self.nodes.iter().enumerate().rev() {
            kept[id] |= !node.traits.effect.is_repeatable() && pending(NodeId::new(id));
            if kept[id] {
                for input in &node.inputs {
                    if let Source::Value(value) = input.source
                        && let Some((made_by, _)) = producer(value)
                    {
                        kept[made_by.index()] = true;
                    }
                }
            }
        }
        kept
    }

    /// Drops all nodes but the `kept` ones, and all values but theirs and `roots`. Answers the new
    /// numbers of the nodes and values that are left.
    pub fn retain(
        &mut self,
        kept: &[bool],
        roots: &BTreeSet<ValueId>,
    ) -> (BTreeMap<NodeId, NodeId>, BTreeMap<ValueId, ValueId>) {
        let mut used = roots.clone();
        for node in self
            .nodes
            .iter()
            .zip(kept)
            .filter(|(_, kept)| **kept)
            .map(|(node, _)| node)
        {
            used.extend(&node.outputs);
            used.extend(node.inputs.iter().filter_map(Operand::value));
        }
        let values: BTreeMap<_, _> = used
            .iter()
            .enumerate()
            .map(|(new, &old)| (old, ValueId::new(new)))
            .collect();
        let left = (0..self.nodes.len()).filter(|&id| kept[id]);
        let nodes: BTreeMap<_, _> = left
            .enumerate()
            .map(|(new, old)| (NodeId::new(old), NodeId::new(new)))
            .collect();
        self.values = used
            .iter()
            .map(|&old| self.values[old.index()].clone())
            .collect();
        for value in &mut self.values {
            let producer = value.producer.take();
            value.producer = producer.and_then(|(node, i)| Some((*nodes.get(&node)?, i)));
        }
        let mut keep = kept.iter();
        self.nodes.retain(|_| keep.next().copied().unwrap_or(false));
        for node in &mut self.nodes {
            for output in &mut node.outputs {
                *output = values[output];
            }
            for input in &mut node.inputs {
                if let Source::Value(id) = &mut input.source {
                    *id = values[id];
                }
            }
        }
        (nodes, values)
    }
}
