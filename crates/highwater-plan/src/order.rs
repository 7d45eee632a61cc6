//! The order in which nodes run for the first time.
//!
//! Program order, with three exceptions. Guards go as early as their inputs are there. So do nodes
//! that *condense* (their outputs are tiny beside their inputs, as the norm of a gradient is): what
//! they read may go the sooner. And so do *updates* (nodes that write cells which nobody reads
//! afterwards): they go as soon as their inputs are final, every guard has passed and every reader of
//! the old version has run. Where an update stands depends on replays too, so updates are not steps:
//! they have an earliest place, which a simulation may put off.

use crate::check::ProblemError;
use crate::problem::{CellId, Effect, Home, Node, NodeId, Problem, ValueId, Version};
use std::collections::{BTreeMap, BTreeSet};

/// A node that writes cells which nobody reads afterwards.
#[derive(Debug, Clone)]
pub(crate) struct Update {
    /// The node.
    pub(crate) node: NodeId,
    /// It may run before the step with this index, no earlier.
    pub(crate) due: u32,
    /// Updates (by index, each smaller) that must run before this one.
    pub(crate) after: Vec<u32>,
}

/// The order of first runs.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// Nodes in order, without updates and without nodes that are done.
    pub(crate) steps: Vec<NodeId>,
    /// Updates, each after those it must follow.
    pub(crate) updates: Vec<Update>,
}

type Writers = BTreeMap<(CellId, Version), NodeId>;

/// The node that overwrites a version of a cell in this plan.
pub(crate) fn writers(problem: &Problem) -> Writers {
    let mut writers = BTreeMap::new();
    for (node, n) in (0..).zip(&problem.nodes) {
        if !n.done {
            writers.extend(n.writes.iter().map(|&w| (w, node)));
        }
    }
    writers
}

/// Schedules the first runs of all nodes that are not done.
pub(crate) fn order(problem: &Problem, producer: &[Option<NodeId>]) -> Result<Order, ProblemError> {
    let movable = movable(problem);
    let before = predecessors(problem, producer);
    let fixed = |&n: &NodeId| !problem.nodes[n as usize].done && !movable[n as usize];
    let all = 0..problem.nodes.len() as NodeId;
    let early = |n: &Node| n.effect == Effect::Guard || condenses(problem, n);
    let rank = |n: NodeId| (!early(&problem.nodes[n as usize]), n);
    let steps = sorted(all.clone().filter(fixed), &before, rank)?;
    let mut place = vec![0u32; problem.nodes.len()];
    for (p, &n) in (1..).zip(&steps) {
        place[n as usize] = p;
    }
    let moved = all.filter(|&n| movable[n as usize]);
    let nodes = sorted(moved, &before, |n| (false, n))?;
    let mut index = vec![u32::MAX; problem.nodes.len()];
    let mut updates: Vec<Update> = Vec::new();
    for (i, &node) in (0..).zip(&nodes) {
        index[node as usize] = i;
        let (mut due, mut after) = (0, Vec::new());
        for &b in &before[node as usize] {
            if movable[b as usize] {
                after.push(index[b as usize]);
                due = due.max(updates[index[b as usize] as usize].due);
            } else {
                due = due.max(place[b as usize]);
            }
        }
        updates.push(Update { node, due, after });
    }
    Ok(Order { steps, updates })
}

/// Whether a node's outputs take next to nothing beside what it reads.
fn condenses(problem: &Problem, n: &Node) -> bool {
    let bytes = |list: &[ValueId]| -> u64 {
        let values = list.iter().map(|&v| &problem.values[v as usize]);
        let arena = values.filter(|v| v.home != Home::External);
        arena.map(|v| problem.footprint(v.bytes)).sum()
    };
    let read = bytes(&n.inputs);
    n.effect == Effect::Repeatable && read > 0 && bytes(&n.outputs) <= read / 64
}

/// Which nodes are updates in the sense of this module.
fn movable(problem: &Problem) -> Vec<bool> {
    let mut touched: BTreeSet<(CellId, Version)> = BTreeSet::new();
    let mut used = vec![false; problem.values.len()];
    for n in problem.nodes.iter().filter(|n| !n.done) {
        touched.extend(n.reads.iter().chain(&n.writes));
        for &v in &n.inputs {
            used[v as usize] = true;
        }
    }
    let idle = |&v: &ValueId| {
        let value = &problem.values[v as usize];
        !(used[v as usize] || value.wanted && value.home == Home::Arena)
    };
    let moves = |n: &Node| {
        !n.done
            && n.effect == Effect::Once
            && !n.writes.is_empty()
            && n.writes
                .iter()
                .all(|&(c, v)| !touched.contains(&(c, v + 1)))
            && n.outputs.iter().all(idle)
    };
    problem.nodes.iter().map(moves).collect()
}

/// For each node that is not done: the nodes, not done either, that must run before it.
fn predecessors(problem: &Problem, producer: &[Option<NodeId>]) -> Vec<Vec<NodeId>> {
    let alive = |&n: &NodeId| !problem.nodes[n as usize].done;
    let writers = writers(problem);
    let nodes = || {
        (0..)
            .zip(&problem.nodes)
            .filter(|(_, n): &(NodeId, &Node)| !n.done)
    };
    let guards: Vec<NodeId> = nodes()
        .filter(|(_, n)| n.effect == Effect::Guard)
        .map(|(i, _)| i)
        .collect();
    let mut before: Vec<Vec<NodeId>> = vec![Vec::new(); problem.nodes.len()];
    for (i, n) in nodes() {
        let list = &mut before[i as usize];
        list.extend(
            n.inputs
                .iter()
                .filter_map(|&v| producer[v as usize])
                .filter(alive),
        );
        for &(cell, version) in n.reads.iter().chain(&n.writes) {
            let made = version.checked_sub(1).and_then(|v| writers.get(&(cell, v)));
            list.extend(made.filter(|&&w| w != i));
        }
        if !n.writes.is_empty() {
            list.extend(&guards);
        }
    }
    for (i, n) in nodes() {
        for read in &n.reads {
            if let Some(&w) = writers.get(read).filter(|&&w| w != i) {
                before[w as usize].push(i);
            }
        }
    }
    before
}

/// Sorts nodes so that each follows its predecessors among them, least rank first.
fn sorted(
    nodes: impl Iterator<Item = NodeId>,
    before: &[Vec<NodeId>],
    rank: impl Fn(NodeId) -> (bool, NodeId),
) -> Result<Vec<NodeId>, ProblemError> {
    let nodes: Vec<NodeId> = nodes.collect();
    let mut missing = vec![None; before.len()];
    for &n in &nodes {
        missing[n as usize] = Some(0u32);
    }
    let mut next: Vec<Vec<NodeId>> = vec![Vec::new(); before.len()];
    for &n in &nodes {
        for &b in before[n as usize]
            .iter()
            .filter(|&&b| missing[b as usize].is_some())
        {
            next[b as usize].push(n);
        }
    }
    for n in next.iter().flatten() {
        if let Some(count) = &mut missing[*n as usize] {
            *count += 1;
        }
    }
    let ready = nodes.iter().filter(|&&n| missing[n as usize] == Some(0));
    let mut ready: BTreeSet<(bool, NodeId)> = ready.map(|&n| rank(n)).collect();
    let mut out = Vec::with_capacity(nodes.len());
    while let Some((_, n)) = ready.pop_first() {
        out.push(n);
        missing[n as usize] = None;
        for &m in &next[n as usize] {
            if let Some(count) = &mut missing[m as usize] {
                *count -= 1;
                if *count == 0 {
                    ready.insert(rank(m));
                }
            }
        }
    }
    match nodes.iter().find(|&&n| missing[n as usize].is_some()) {
        Some(&node) => Err(ProblemError::NoOrder { node }),
        None => Ok(out),
    }
}
