//! Checkpointing by hand, as PyTorch's `checkpoint` around blocks does it: what a segment hands on
//! is kept, all else of it is made again at once when its backward starts. Only what the backward
//! reads is made again, which is a little less than PyTorch does.

use crate::common::samples::Sample;
use highwater_plan::*;
use std::collections::BTreeMap;

/// The runs of a step that checkpoints segments of so many blocks.
pub(crate) fn runs(sample: &Sample, blocks: usize) -> Vec<NodeId> {
    let readers = readers(&sample.problem);
    let mut replays: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    for segment in sample.blocks.chunks(blocks) {
        let (start, end) = (segment[0].start, segment[segment.len() - 1].end);
        let replay = replay(sample, &readers, start, end);
        if let Some((trigger, nodes)) = replay {
            replays.entry(trigger).or_default().extend(nodes);
        }
    }
    let mut runs = Vec::new();
    for n in 0..sample.problem.nodes.len() {
        runs.extend(replays.remove(&n).unwrap_or_default());
        runs.push(NodeId::new(n));
    }
    runs
}

/// What runs again of a segment, and before which node.
fn replay(
    sample: &Sample,
    readers: &[Vec<usize>],
    start: usize,
    end: usize,
) -> Option<(usize, Vec<NodeId>)> {
    let nodes = &sample.problem.nodes;
    let forward = |&r: &usize| (end..sample.turn).contains(&r);
    let kept = |v: ValueId| readers[v.index()].iter().any(forward);
    let backward = |v: ValueId| {
        readers[v.index()]
            .iter()
            .copied()
            .find(|&r| r >= sample.turn)
    };
    let mut missing = vec![false; sample.problem.values.len()];
    let mut trigger = None;
    for &v in nodes[start..end].iter().flat_map(|n| &n.outputs) {
        let arena = sample.problem.values[v.index()].home == Home::Arena;
        if let Some(reader) = backward(v).filter(|_| arena && !kept(v)) {
            missing[v.index()] = true;
            trigger = Some(trigger.map_or(reader, |t: usize| t.min(reader)));
        }
    }
    let mut again = Vec::new();
    for n in (start..end).rev() {
        let makes = nodes[n].outputs.iter().any(|&v| missing[v.index()]);
        if makes {
            again.push(NodeId::new(n));
            for &v in nodes[n].inputs.iter().filter(|&&v| !kept(v)) {
                missing[v.index()] = true;
            }
        }
    }
    again.reverse();
    trigger.map(|t| (t, again))
}

/// The nodes that read each value, in order.
pub(crate) fn readers(problem: &Problem) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); problem.values.len()];
    for (n, node) in problem.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&v| readers[v.index()].push(n));
    }
    readers
}
