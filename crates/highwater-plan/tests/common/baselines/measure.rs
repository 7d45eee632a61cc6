//! What a list of runs comes to when each value is held no longer than some run still reads it.

use highwater_plan::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    /// Most live bytes, scratch memory included.
    pub(crate) peak: u64,
    pub(crate) seconds: f64,
}

/// Measures a list of runs of which each finds its inputs made by the last run of their producers.
/// Outputs take over dying inputs where the node allows it.
pub(crate) fn measure(problem: &Problem, runs: &[NodeId]) -> Measured {
    let size = |v: ValueId| match problem.values[v.index()].home {
        Home::External => 0,
        _ => footprint(problem.values[v.index()].bytes),
    };
    check(problem, runs);
    let dying = dying(problem, runs);
    let (mut bytes, mut peak, mut seconds) = (0u64, 0, 0.0);
    for (&node, dying) in runs.iter().zip(&dying) {
        let n = &problem.nodes[node.index()];
        let taken: Vec<(ValueId, ValueId)> = taken(problem, n, dying);
        let left_out: Vec<(ValueId, f64)> = left_out(problem, n, dying);
        let left = |v: &ValueId| left_out.iter().any(|l| l.0 == *v);
        let fresh = |v: &&ValueId| taken.iter().all(|t| t.1 != **v) && !left(v);
        bytes += n
            .outputs
            .iter()
            .filter(fresh)
            .map(|&v| size(v))
            .sum::<u64>();
        peak = peak.max(bytes + footprint(n.scratch_bytes));
        let gone = |v: &&ValueId| taken.iter().all(|t| t.0 != **v) && !left(v);
        bytes -= dying.iter().filter(gone).map(|&v| size(v)).sum::<u64>();
        seconds += n.seconds - left_out.iter().map(|l| l.1).sum::<f64>();
    }
    Measured { peak, seconds }
}

/// Asserts that every node runs, what it reads is there and current, and what writes runs once.
fn check(problem: &Problem, runs: &[NodeId]) {
    let mut made: Vec<bool> = problem
        .values
        .iter()
        .map(|v| v.home == Home::External)
        .collect();
    let mut ran = vec![false; problem.nodes.len()];
    let mut written: BTreeMap<CellId, Version> = BTreeMap::new();
    for &node in runs {
        let n = &problem.nodes[node.index()];
        let again = std::mem::replace(&mut ran[node.index()], true);
        assert!(
            !again || n.effect == Effect::Repeatable,
            "node {node} again"
        );
        let there = n.inputs.iter().all(|&v| made[v.index()]);
        let current = |&(c, v): &(CellId, Version)| written.get(&c).copied().unwrap_or(0) == v;
        assert!(
            there && n.reads.iter().all(current),
            "node {node} reads what is not there"
        );
        for &v in &n.outputs {
            made[v.index()] = true;
        }
        written.extend(n.writes.iter().map(|&(c, v)| (c, v + 1)));
    }
    assert!(ran.iter().all(|&r| r), "not every node runs");
}

/// For each run: which of its values no later run reads before they are made again.
fn dying(problem: &Problem, runs: &[NodeId]) -> Vec<Vec<ValueId>> {
    let mut read: Vec<bool> = problem.values.iter().map(|v| v.wanted).collect();
    let mut all = Vec::with_capacity(runs.len());
    for &node in runs.iter().rev() {
        let n = &problem.nodes[node.index()];
        let mut dying: Vec<ValueId> = n.inputs.iter().chain(&n.outputs).copied().collect();
        dying.sort_unstable();
        dying.dedup();
        dying.retain(|&v| !read[v.index()]);
        n.outputs.iter().for_each(|&v| read[v.index()] = false);
        n.inputs.iter().for_each(|&v| read[v.index()] = true);
        all.push(dying);
    }
    all.reverse();
    all
}

/// The outputs that a run leaves out, since nobody reads what it would make of them.
fn left_out(problem: &Problem, n: &Node, dying: &[ValueId]) -> Vec<(ValueId, f64)> {
    let values = n.optional.iter().map(|&(o, s)| (n.outputs[o as usize], s));
    let inside = |v: ValueId| problem.values[v.index()].home != Home::External;
    values
        .filter(|&(v, _)| inside(v) && dying.contains(&v))
        .collect()
}

/// The pairs of inputs and outputs that share a buffer.
fn taken(problem: &Problem, n: &Node, dying: &[ValueId]) -> Vec<(ValueId, ValueId)> {
    let mut taken: Vec<(ValueId, ValueId)> = Vec::new();
    for &(i, o) in &n.in_place {
        let (i, o) = (n.inputs[i as usize], n.outputs[o as usize]);
        let (from, to) = (&problem.values[i.index()], &problem.values[o.index()]);
        let alike = from.bytes == to.bytes && from.home == Home::Arena && to.home == Home::Arena;
        let once = n.inputs.iter().filter(|&&v| v == i).count() == 1;
        let free = taken.iter().all(|t| t.0 != i && t.1 != o);
        if alike && once && free && dying.contains(&i) {
            taken.push((i, o));
        }
    }
    taken
}
