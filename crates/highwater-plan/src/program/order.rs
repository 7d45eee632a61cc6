//! The order in which nodes run for the first time.
//!
//! Program order, with three exceptions. Guards go as early as their inputs are there. So do nodes
//! that *condense* (their outputs are tiny beside their inputs, as the norm of a gradient is): what
//! they read may go the sooner. And so do *updates* (nodes that write cells which nobody but other
//! updates touches afterwards): they go as soon as their inputs are final, every guard has passed and
//! every reader of the old version has run. Updates of one cell follow each other in the order of its
//! versions. Where an update stands depends on replays too, so updates are not steps: they have an
//! earliest place, which a simulation may put off.

use crate::problem::{CellId, Effect, Home, Node, NodeId, Problem, ValueId, Version};
use crate::program::check::ProblemError;
use std::collections::{BTreeMap, BTreeSet};

/// A node that writes cells which nobody but other updates touches afterwards.
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
    for (node, n) in NodeId::numbered(&problem.nodes) {
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
    let done = |n: NodeId| problem.nodes[n.index()].done;
    // What is done is no step, but what follows may have to wait for what it would be run again from.
    let fixed = |&n: &NodeId| !movable[n.index()];
    let all = NodeId::below(problem.nodes.len());
    let early = |n: &Node| n.effect == Effect::Guard || condenses(problem, n);
    // The gate is no node: it goes as soon as it can, and is left out.
    let gate = NodeId::new(problem.nodes.len());
    let is_step = |n: NodeId| n != gate && !done(n);
    let rank = |n: NodeId| (is_step(n) && !early(&problem.nodes[n.index()]), n);
    let mut steps = Vec::new();
    let mut place = vec![0u32; problem.nodes.len() + 1];
    for n in sorted(all.clone().filter(fixed).chain([gate]), &before, rank)? {
        if is_step(n) {
            steps.push(n);
            place[n.index()] = steps.len() as u32;
        } else {
            let passed = before[n.index()].iter().map(|&n| place[n.index()]);
            place[n.index()] = passed.max().unwrap_or(0);
        }
    }
    let moved = all.filter(|&n| movable[n.index()]);
    let nodes = sorted(moved, &before, |n| (false, n))?;
    let mut index = vec![u32::MAX; problem.nodes.len()];
    let mut updates: Vec<Update> = Vec::new();
    for (i, &node) in (0..).zip(&nodes) {
        index[node.index()] = i;
        let (mut due, mut after) = (0, Vec::new());
        for &b in &before[node.index()] {
            if b != gate && movable[b.index()] {
                after.push(index[b.index()]);
                due = due.max(updates[index[b.index()] as usize].due);
            } else {
                due = due.max(place[b.index()]);
            }
        }
        updates.push(Update { node, due, after });
    }
    Ok(Order { steps, updates })
}

/// Whether a node's outputs take next to nothing beside what it reads.
fn condenses(problem: &Problem, n: &Node) -> bool {
    let bytes = |list: &[ValueId]| -> u64 {
        let values = list.iter().map(|&v| &problem.values[v.index()]);
        let arena = values.filter(|v| v.home != Home::External);
        arena.map(|v| problem.footprint(v.bytes)).sum()
    };
    let read = bytes(&n.inputs);
    n.effect == Effect::Repeatable && read > 0 && bytes(&n.outputs) <= read / 64
}

/// Which nodes are updates in the sense of this module: of those that write cells and fill nothing
/// that is needed, all but those whose new version some other node touches.
fn movable(problem: &Problem) -> Vec<bool> {
    let mut used = vec![false; problem.values.len()];
    for n in problem.nodes.iter().filter(|n| !n.done) {
        for &v in &n.inputs {
            used[v.index()] = true;
        }
    }
    let idle = |&v: &ValueId| {
        let value = &problem.values[v.index()];
        !(used[v.index()] || value.wanted && value.home == Home::Arena)
    };
    let moves = |n: &Node| {
        !n.done && n.effect == Effect::Once && !n.writes.is_empty() && n.outputs.iter().all(idle)
    };
    let mut movable: Vec<bool> = problem.nodes.iter().map(moves).collect();
    // A node that stays in its place keeps there what made the versions that it touches.
    let writers = writers(problem);
    let stays = |&n: &NodeId| !movable[n.index()] && !problem.nodes[n.index()].done;
    let all = NodeId::below(problem.nodes.len());
    let mut stay: Vec<NodeId> = all.filter(stays).collect();
    while let Some(n) = stay.pop() {
        let n = &problem.nodes[n.index()];
        for &(cell, version) in n.reads.iter().chain(&n.writes) {
            let maker = version.checked_sub(1).and_then(|v| writers.get(&(cell, v)));
            if let Some(&maker) = maker
                && std::mem::take(&mut movable[maker.index()])
            {
                stay.push(maker);
            }
        }
    }
    movable
}

/// For each node: the nodes that must run before it. Those that are done are among them where what they
/// made is gone, and stand for what they would be run again from. One more, the gate, stands for all guards:
/// what writes cells comes after it.
fn predecessors(problem: &Problem, producer: &[Option<NodeId>]) -> Vec<Vec<NodeId>> {
    let maker = |&v: &ValueId| {
        let gone = problem.values[v.index()].home == Home::Arena;
        producer[v.index()].filter(|&n| gone || !problem.nodes[n.index()].done)
    };
    let writers = writers(problem);
    let nodes = || NodeId::numbered(&problem.nodes).filter(|(_, n): &(NodeId, &Node)| !n.done);
    let guards: Vec<NodeId> = nodes()
        .filter(|(_, n)| n.effect == Effect::Guard)
        .map(|(i, _)| i)
        .collect();
    let gate = problem.nodes.len();
    let mut before: Vec<Vec<NodeId>> = vec![Vec::new(); gate + 1];
    before[gate] = guards;
    for (before, n) in before.iter_mut().zip(&problem.nodes) {
        before.extend(n.inputs.iter().filter_map(maker));
    }
    for (i, n) in nodes() {
        let list = &mut before[i.index()];
        for &(cell, version) in n.reads.iter().chain(&n.writes) {
            let made = version.checked_sub(1).and_then(|v| writers.get(&(cell, v)));
            list.extend(made.filter(|&&w| w != i));
        }
        if !n.writes.is_empty() {
            list.push(NodeId::new(gate));
        }
    }
    for (i, n) in nodes() {
        for read in &n.reads {
            if let Some(&w) = writers.get(read).filter(|&&w| w != i) {
                before[w.index()].push(i);
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
        missing[n.index()] = Some(0u32);
    }
    let mut next: Vec<Vec<NodeId>> = vec![Vec::new(); before.len()];
    for &n in &nodes {
        for &b in before[n.index()]
            .iter()
            .filter(|&&b| missing[b.index()].is_some())
        {
            next[b.index()].push(n);
        }
    }
    for n in next.iter().flatten() {
        if let Some(count) = &mut missing[n.index()] {
            *count += 1;
        }
    }
    let ready = nodes.iter().filter(|&&n| missing[n.index()] == Some(0));
    let mut ready: BTreeSet<(bool, NodeId)> = ready.map(|&n| rank(n)).collect();
    let mut out = Vec::with_capacity(nodes.len());
    while let Some((_, n)) = ready.pop_first() {
        out.push(n);
        missing[n.index()] = None;
        for &m in &next[n.index()] {
            if let Some(count) = &mut missing[m.index()] {
                *count -= 1;
                if *count == 0 {
                    ready.insert(rank(m));
                }
            }
        }
    }
    match nodes.iter().find(|&&n| missing[n.index()].is_some()) {
        // The gate is among them only if a guard is, which comes before it in the list.
        Some(&node) => Err(ProblemError::NoOrder { node }),
        None => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Pin, Value};
    use crate::program::check::producers;

    /// Numbers of cells, and versions.
    type Cells<'a> = &'a [(usize, Version)];

    fn values(numbers: &[usize]) -> Vec<ValueId> {
        numbers.iter().copied().map(ValueId::new).collect()
    }

    fn cells(numbers: Cells<'_>) -> Vec<(CellId, Version)> {
        let cell = |&(cell, version)| (CellId::new(cell), version);
        numbers.iter().map(cell).collect()
    }

    /// Four forward nodes and a guard, of which node 1 reads cell 7; then nodes of which each reads
    /// values and cells and writes cells.
    fn problem(rest: &[(&[usize], Cells<'_>, Cells<'_>)]) -> Problem {
        let value = |home| Value {
            bytes: 64,
            home,
            pin: Pin::Free,
            wanted: false,
        };
        let mut problem = Problem {
            values: vec![value(Home::Arena); 5],
            nodes: (0..4)
                .map(|v| Node::new(&values(&[v]), &values(&[v + 1]), 1.0))
                .collect(),
            ..Problem::default()
        };
        problem.values[0] = value(Home::External);
        problem.nodes[1].reads.push((CellId::new(7), 0));
        let mut guard = Node::new(&values(&[3]), &[], 0.0);
        guard.effect = Effect::Guard;
        problem.nodes.push(guard);
        for (inputs, reads, writes) in rest {
            let mut node = Node::new(&values(inputs), &[], 1.0);
            (node.reads, node.writes) = (cells(reads), cells(writes));
            node.effect = Effect::Once;
            problem.nodes.push(node);
        }
        problem
    }

    fn ordered(problem: &Problem) -> Order {
        order(problem, &producers(problem)).expect("sound")
    }

    #[test]
    fn many_guards_before_many_writes_are_few_edges() {
        let mut guarded = problem(&[]);
        for cell in 0..100 {
            let mut guard = Node::new(&values(&[2]), &[], 0.0);
            guard.effect = Effect::Guard;
            let mut update = Node::new(&values(&[2]), &[], 0.0);
            (update.effect, update.writes) = (Effect::Once, cells(&[(cell + 100, 0)]));
            guarded.nodes.extend([guard, update]);
        }
        let before = predecessors(&guarded, &producers(&guarded));
        let edges: usize = before.iter().map(Vec::len).sum();
        assert!(edges < 4 * guarded.nodes.len(), "{edges}");
        let Order { steps, updates } = ordered(&guarded);
        let place = |n: NodeId| steps.iter().position(|&s| s == n);
        let guards = NodeId::below(guarded.nodes.len())
            .filter(|&n| guarded.nodes[n.index()].effect == Effect::Guard);
        let last = guards.filter_map(place).max().expect("there are guards");
        assert!(updates.iter().all(|u| u.due as usize > last));
        assert_eq!(updates.len(), 100);
    }

    #[test]
    fn a_chain_of_updates_of_one_cell_moves_in_order() {
        let chain = problem(&[
            (&[3], &[], &[(7, 0), (8, 0)]),
            (&[4], &[], &[(7, 1), (9, 0)]),
            (&[3], &[], &[(7, 2)]),
        ]);
        let Order { steps, updates } = ordered(&chain);
        // The guard goes as soon as it can.
        assert_eq!(steps, [0, 1, 2, 4, 3].map(NodeId::new));
        let found: Vec<_> = updates.iter().map(|u| (u.node.index(), u.due)).collect();
        assert_eq!(found, [(5, 4), (6, 5), (7, 5)]);
        let after: Vec<_> = updates.iter().map(|u| u.after.clone()).collect();
        assert_eq!(after, [vec![], vec![0], vec![1]]);
    }

    #[test]
    fn what_a_node_in_its_place_touches_is_made_in_its_place() {
        // The second update reads what the first made of cell 7, and moves with it; the last node
        // fills what somebody wants, so it stays, and with it what made the version that it reads.
        let mut chain = problem(&[
            (&[3], &[], &[(7, 0)]),
            (&[3], &[(7, 1)], &[(8, 0)]),
            (&[3], &[], &[(9, 0)]),
            (&[3], &[], &[(9, 1)]),
        ]);
        let nodes = |order: Order| {
            order
                .updates
                .iter()
                .map(|u| u.node.index())
                .collect::<Vec<_>>()
        };
        assert_eq!(nodes(ordered(&chain)), [5, 6, 7, 8]);
        chain.nodes.push(Node::new(&values(&[3]), &[], 1.0));
        chain.nodes[9].reads.push((CellId::new(9), 2));
        assert_eq!(nodes(ordered(&chain)), [5, 6]);
        chain.nodes[9].reads.push((CellId::new(8), 1));
        assert_eq!(nodes(ordered(&chain)), []);
    }
}
