//! A problem compiled into flat tables for the simulator: steps, updates, and for each value in
//! the arena its *gaps*.
//!
//! A gap is the time from one event of a value (its production, or a use) to its next use; one
//! small integer per gap (see [`crate::simulate::setting`]) says what happens to the value in it. After the
//! last use comes one more, the *tail*. What an update reads is no use in this sense: it is simply
//! held until the update has run.

mod check;
mod order;

pub use check::ProblemError;
pub(crate) use check::check;

use crate::csr::Csr;
use crate::problem::{CellId, Effect, Home, Node, NodeId, Problem, Tier, Tiers, ValueId, Version};
use crate::program::check::producers;
use crate::program::order::{Update, order, writers};
use std::collections::BTreeMap;

/// Until when a node may be run again, because of a cell that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Up to and including what the step with this index needs.
    Step(u32),
    /// Until this update has run.
    Update(u32),
    /// The version is gone from the start.
    Gone,
}

/// A problem in the simulator's terms. Only values in the arena appear.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Nodes in order of their first run; the last one, past all nodes, stands for the end of the
    /// plan and reads what is wanted.
    pub(crate) steps: Vec<NodeId>,
    pub(crate) updates: Vec<Update>,
    /// Per node: distinct inputs, earliest producer first.
    pub(crate) inputs: Csr<NodeId, ValueId>,
    pub(crate) outputs: Csr<NodeId, ValueId>,
    /// Per node: pairs of values that may share a buffer.
    pub(crate) in_place: Csr<NodeId, (ValueId, ValueId)>,
    pub(crate) locks: Csr<NodeId, Lock>,
    pub(crate) scratch: Vec<u64>,
    pub(crate) seconds: Vec<f64>,
    /// Per node: the outputs that a run may leave out, and the seconds that this saves.
    pub(crate) optional: Csr<NodeId, (ValueId, f64)>,
    pub(crate) guard: Vec<bool>,
    /// Per value: bytes that it takes in the arena.
    pub(crate) size: Vec<u64>,
    pub(crate) producer: Vec<Option<NodeId>>,
    /// Per value: whether it can be made again at all.
    pub(crate) repeatable: Vec<bool>,
    /// Values that are there from the start.
    pub(crate) initial: Vec<ValueId>,
    pub(crate) cells: Cells,
    pub(crate) tiers: Tiers,
    /// Per value: how many updates read it, and the first step before which the last of them may run.
    pub(crate) pending: Vec<u32>,
    pub(crate) updated_at: Vec<u32>,
    /// Per value: the steps that use it, ascending. Gap `k` of value `v` has the flat index
    /// [`Program::gap`]`(v) + k` in a list of settings, which is why the rows have room for the
    /// tail: its entry is `u32::MAX`.
    uses: Csr<ValueId, u32>,
    /// Per step: the values that it uses.
    pub(crate) used: Csr<u32, ValueId>,
    /// Per value: the step that fills it (0 if it is there from the start).
    pub(crate) filled: Vec<u32>,
}

/// The values that are cells' bytes.
#[derive(Debug, Clone)]
pub(crate) struct Cells {
    /// Ascending, with the tiers that are their homes, where that is not to be decided.
    pub(crate) list: Vec<(ValueId, Option<Tier>)>,
    /// Per value: whether it is one.
    is_cell: Vec<bool>,
    /// Per node: those that it overwrites.
    pub(crate) rewrites: Csr<NodeId, ValueId>,
    /// Per value: whether a node overwrites it.
    pub(crate) rewritten: Vec<bool>,
}

impl Cells {
    fn new(problem: &Problem) -> Cells {
        let mut cells = Cells {
            list: Vec::new(),
            is_cell: vec![false; problem.values.len()],
            rewrites: Csr::from_iter([]),
            rewritten: vec![false; problem.values.len()],
        };
        for (v, value) in ValueId::numbered(&problem.values) {
            if let Home::Cell(tier) = value.home {
                cells.list.push((v, tier));
                cells.is_cell[v.index()] = true;
            }
        }
        let mut rewrites: Vec<Vec<ValueId>> = Vec::with_capacity(problem.nodes.len() + 1);
        for n in &problem.nodes {
            let row = n.rewrites.iter().map(|&at| n.inputs[at as usize]);
            rewrites.push(row.collect());
            for &v in rewrites.last().into_iter().flatten() {
                cells.rewritten[v.index()] = true;
            }
        }
        rewrites.push(Vec::new());
        cells.rewrites = rewrites.into_iter().collect();
        cells
    }
}

impl Program {
    pub(crate) fn new(problem: &Problem) -> Result<Program, ProblemError> {
        let producer = producers(problem);
        let order = order(problem, &producer)?;
        let locks = locks(problem, &order.steps, &order.updates)?;
        let arena = |v: &ValueId| problem.values[v.index()].home != Home::External;
        let values = || ValueId::below(problem.values.len());
        let nodes = || problem.nodes.iter();
        let size = |bytes| problem.footprint(bytes);
        let wanted: Vec<ValueId> = values()
            .filter(|v| arena(v) && problem.values[v.index()].wanted)
            .collect();
        let lists = problem.nodes.iter().map(|n| &n.inputs).chain([&wanted]);
        // Cells last: what is made again for the same run need not stand beside them.
        let cells = Cells::new(problem);
        let place = |v: ValueId| (cells.is_cell[v.index()], producer[v.index()], v);
        let inputs = lists.map(|list| {
            let mut list: Vec<ValueId> = list.iter().copied().filter(arena).collect();
            list.sort_unstable_by_key(|&v| place(v));
            list.dedup();
            list
        });
        let fills = |n: &Node| n.outputs.iter().copied().filter(arena).collect();
        let again = |v: ValueId| {
            let producer = producer[v.index()].map(|p| &problem.nodes[p.index()]);
            producer.is_some_and(|n| n.effect == Effect::Repeatable)
        };
        let optional = |n: &Node| {
            let values = n.optional.iter().map(|&(o, s)| (n.outputs[o as usize], s));
            values.filter(|(v, _)| arena(v)).collect()
        };
        let resident =
            |&v: &ValueId| matches!(problem.values[v.index()].home, Home::Resident { .. });
        let mut program = Program {
            inputs: inputs.collect(),
            outputs: nodes().map(fills).chain([Vec::new()]).collect(),
            in_place: nodes().map(|n| pairs(problem, n)).collect(),
            locks,
            scratch: nodes().map(|n| size(n.scratch_bytes)).collect(),
            seconds: nodes().map(|n| n.seconds).collect(),
            optional: nodes().map(optional).collect(),
            guard: nodes().map(|n| n.effect == Effect::Guard).collect(),
            size: problem.values.iter().map(|v| size(v.bytes)).collect(),
            repeatable: values().map(again).collect(),
            initial: values().filter(resident).collect(),
            cells,
            tiers: problem.tiers,
            pending: vec![0; problem.values.len()],
            updated_at: vec![0; problem.values.len()],
            steps: order
                .steps
                .into_iter()
                .chain([NodeId::new(problem.nodes.len())])
                .collect(),
            updates: order.updates,
            uses: Csr::from_iter([]),
            used: Csr::from_iter([]),
            filled: vec![0; problem.values.len()],
            producer,
        };
        program.count();
        program.find_uses(problem);
        Ok(program)
    }

    /// Fills `filled` and `pending`.
    fn count(&mut self) {
        for (p, &n) in (0..).zip(&self.steps) {
            for &v in self.outputs.row(n) {
                self.filled[v.index()] = p;
            }
        }
        for u in &self.updates {
            for &v in self.inputs.row(u.node) {
                self.pending[v.index()] += 1;
                self.updated_at[v.index()] = self.updated_at[v.index()].max(u.due);
            }
        }
    }

    /// Whether a value is a cell's bytes.
    pub(crate) fn is_cell(&self, v: ValueId) -> bool {
        self.cells.is_cell[v.index()]
    }

    /// Seconds saved by leaving a value out of a run of its producer; `None` if it must be filled.
    pub(crate) fn saved(&self, node: NodeId, v: ValueId) -> Option<f64> {
        let row = self.optional.row(node).iter();
        row.copied().find(|o| o.0 == v).map(|o| o.1)
    }

    /// Seconds of a run of `v`'s producer that leaves out what it may besides.
    pub(crate) fn alone(&self, node: NodeId, v: ValueId) -> f64 {
        let others = self.optional.row(node).iter().filter(|o| o.0 != v);
        self.seconds[node.index()] - others.map(|o| o.1).sum::<f64>()
    }

    /// What stands for the end of the plan, after all nodes.
    pub(crate) fn end(&self) -> NodeId {
        NodeId::new(self.seconds.len())
    }

    /// Flat index of the first gap of a value.
    pub(crate) fn gap(&self, v: ValueId) -> usize {
        self.uses.range(v).start
    }

    /// The steps that use a value.
    pub(crate) fn uses(&self, v: ValueId) -> &[u32] {
        let row = self.uses.row(v);
        &row[..row.len() - 1]
    }

    /// Number of gaps, tails included.
    pub(crate) fn gaps(&self) -> usize {
        self.uses.items().len()
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.seconds.len()
    }

    /// Number of settings: one for each gap and one for each node.
    pub(crate) fn settings(&self) -> usize {
        self.gaps() + self.end().index() + 1
    }

    /// Where the setting of a node stands.
    pub(crate) fn order(&self, node: NodeId) -> usize {
        self.gaps() + node.index()
    }

    /// The step that ends the gap with a flat index; `u32::MAX` if it is a tail.
    pub(crate) fn next_use(&self, gap: usize) -> u32 {
        self.uses.items()[gap]
    }

    /// Whether the gap with a flat index is a tail.
    pub(crate) fn tail(&self, gap: usize) -> bool {
        self.next_use(gap) == u32::MAX
    }

    /// The steps between which a gap lies: that of the event before it, and its use (the last step
    /// for tails).
    pub(crate) fn span(&self, v: ValueId, k: usize) -> (u32, u32) {
        let uses = self.uses(v);
        let from = if k == 0 {
            self.filled[v.index()]
        } else {
            uses[k - 1]
        };
        (
            from,
            uses.get(k).copied().unwrap_or(self.steps.len() as u32 - 1),
        )
    }

    /// Fills `uses` and `used`. A done node whose output is gone runs again for the first step
    /// that needs it, directly or not: that step counts as a use of the node's inputs, so that they
    /// are still there then.
    fn find_uses(&mut self, problem: &Problem) {
        let mut gone: Vec<bool> = vec![false; problem.values.len()];
        for n in problem.nodes.iter().filter(|n| n.done) {
            let lost = n
                .outputs
                .iter()
                .filter(|&&v| problem.values[v.index()].home == Home::Arena);
            for &v in lost {
                gone[v.index()] = true;
            }
        }
        let mut updates: Vec<&Update> = self.updates.iter().collect();
        updates.sort_by_key(|u| u.due);
        let mut updates = updates.into_iter().peekable();
        let mut used: Vec<Vec<ValueId>> = Vec::with_capacity(self.steps.len());
        for (p, &n) in (0..).zip(&self.steps) {
            let mut list = self.inputs.row(n).to_vec();
            let mut need = list.clone();
            while let Some(u) = updates.next_if(|u| u.due <= p) {
                need.extend(self.inputs.row(u.node));
            }
            while let Some(v) = need.pop() {
                if std::mem::take(&mut gone[v.index()])
                    && let Some(node) = self.producer[v.index()]
                {
                    list.extend(self.inputs.row(node));
                    need.extend(self.inputs.row(node));
                }
            }
            list.sort_unstable();
            list.dedup();
            used.push(list);
        }
        let mut uses: Vec<Vec<u32>> = vec![Vec::new(); problem.values.len()];
        for (p, list) in (0..).zip(&used) {
            for &v in list {
                uses[v.index()].push(p);
            }
        }
        for list in &mut uses {
            list.push(u32::MAX);
        }
        self.uses = uses.into_iter().collect();
        self.used = used.into_iter().collect();
    }
}

/// The pairs of values of a node that may share a buffer, whatever the plan.
fn pairs(problem: &Problem, n: &Node) -> Vec<(ValueId, ValueId)> {
    let pair = |&(i, o): &(u32, u32)| (n.inputs[i as usize], n.outputs[o as usize]);
    let allowed = |&(i, o): &(ValueId, ValueId)| {
        let (from, to) = (&problem.values[i.index()], &problem.values[o.index()]);
        from.bytes == to.bytes
            && from.bytes > 0
            && !matches!(from.home, Home::External | Home::Cell(_))
            && to.home == Home::Arena
            && !from.wanted
            && n.inputs.iter().filter(|&&v| v == i).count() == 1
    };
    n.in_place.iter().map(pair).filter(allowed).collect()
}

/// For each node: what ends the time in which it may be run again.
fn locks(
    problem: &Problem,
    steps: &[NodeId],
    updates: &[Update],
) -> Result<Csr<NodeId, Lock>, ProblemError> {
    let start = start_versions(problem);
    let writers = writers(problem);
    let mut lock = vec![Lock::Gone; problem.nodes.len()];
    for (p, &n) in (0..).zip(steps) {
        lock[n.index()] = Lock::Step(p);
    }
    for (u, update) in (0..).zip(updates) {
        lock[update.node.index()] = Lock::Update(u);
    }
    let made = |cell: CellId, version: Version| {
        let before = version.checked_sub(1).and_then(|v| writers.get(&(cell, v)));
        before.is_some() || start.get(&cell) == Some(&version)
    };
    let mut rows = Vec::with_capacity(problem.nodes.len());
    for (node, n) in NodeId::numbered(&problem.nodes) {
        if let Some(&(cell, version)) = n
            .reads
            .iter()
            .chain(&n.writes)
            .find(|&&(c, v)| !n.done && !made(c, v))
        {
            return Err(ProblemError::WrongVersion {
                node,
                cell,
                version,
            });
        }
        let row = n.reads.iter().filter_map(|&(cell, version)| {
            if made(cell, version) {
                writers.get(&(cell, version)).map(|&w| lock[w.index()])
            } else {
                Some(Lock::Gone)
            }
        });
        rows.push(row.collect());
    }
    Ok(rows.into_iter().collect())
}

/// The version of each cell that is current when the plan starts: what the nodes that are done
/// left, or else the first that the others name, or else the last that was read.
fn start_versions(problem: &Problem) -> BTreeMap<CellId, Version> {
    let (mut left, mut first, mut last) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for n in &problem.nodes {
        if n.done {
            for &(cell, version) in &n.writes {
                left.entry(cell)
                    .and_modify(|v: &mut u32| *v = version.max(*v))
                    .or_insert(version);
            }
            for &(cell, version) in &n.reads {
                last.entry(cell)
                    .and_modify(|v: &mut u32| *v = version.max(*v))
                    .or_insert(version);
            }
        } else {
            for &(cell, version) in n.reads.iter().chain(&n.writes) {
                first
                    .entry(cell)
                    .and_modify(|v: &mut u32| *v = version.min(*v))
                    .or_insert(version);
            }
        }
    }
    let mut start = last;
    start.extend(first);
    start.extend(left.into_iter().map(|(cell, version)| (cell, version + 1)));
    start
}
