//! What checkpoints say of values, as the planner is told it.

use highwater_graph::{CheckpointPolicy, Graph, Node, Phase, Source, ValueId};
use highwater_plan::Pin;
use std::collections::BTreeMap;

/// What the user decided about values made inside a checkpoint. One that is used outside it in the
/// forward part is recomputed only if the planner sees fit.
pub(super) fn pinned_values(graph: &Graph) -> BTreeMap<ValueId, Pin> {
    let mut pinned = BTreeMap::new();
    let forward = || {
        graph
            .nodes()
            .iter()
            .filter(|node| node.site.phase == Phase::Forward)
    };
    for node in forward() {
        if let Some(checkpoint) = node.site.checkpoint {
            let pin = match checkpoint.policy {
                CheckpointPolicy::MustSave => Pin::Keep,
                CheckpointPolicy::PreferSave => Pin::PreferKeep,
                CheckpointPolicy::MustRecompute => Pin::Recompute,
                CheckpointPolicy::PreferRecompute => Pin::PreferRecompute,
            };
            pinned.extend(node.outputs.iter().map(|&id| (id, pin)));
        }
    }
    if pinned.is_empty() {
        return pinned;
    }
    let region = |node: &Node| node.site.checkpoint.map(|found| found.region);
    let drops = |pin: &Pin| matches!(pin, Pin::Recompute | Pin::PreferRecompute);
    for node in forward() {
        for input in &node.inputs {
            if let Source::Value(id) = input.source
                && let Some((made_by, _)) = graph.value(id).producer
                && region(graph.node(made_by)) != region(node)
                && pinned.get(&id).is_some_and(drops)
            {
                pinned.remove(&id);
            }
        }
    }
    pinned
}
