//! From the pending graph to the planner's problem, and the cache of what it answered.

use crate::Rates;
use highwater_graph::{Effect, Graph, NodeId, Phase, Source, ValueId, specs};
use highwater_plan::{self as plan, Family, Home, Pin, Plan, Policy, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// How far the pending graph has been computed.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Nodes that ran.
    pub(crate) done: BTreeSet<NodeId>,
    /// Values left in the plan arena by an earlier plan of the step, with their offsets.
    pub(crate) residents: BTreeMap<ValueId, u64>,
}

/// The problem that part of a graph poses, with the way back.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) problem: Problem,
    /// The graph's node for each of the problem's.
    pub(crate) nodes: Vec<NodeId>,
    /// The graph's value for each of the problem's.
    pub(crate) values: Vec<ValueId>,
}

/// What a problem is made from.
pub(crate) struct Posed<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) progress: &'a Progress,
    /// Values that lie, or shall lie, in storage of their own.
    pub(crate) external: &'a dyn Fn(ValueId) -> bool,
    /// Values that must be there when the plan ends, in the arena or outside it.
    pub(crate) wanted: &'a BTreeSet<ValueId>,
    pub(crate) threads: usize,
    pub(crate) rates: &'a Rates,
}

/// Poses the problem of computing `targets` (and, if `effects`, of everything that writes or guards
/// cells). Nodes that none of them needs are left out.
pub(crate) fn compile(
    from: &Posed<'_>,
    targets: impl IntoIterator<Item = ValueId>,
    effects: bool,
) -> Compiled {
    let graph = from.graph;
    let needed = needed_nodes(from, targets, effects);
    let mut values = Numbering::default();
    let mut nodes = Vec::new();
    let mut problem = Problem::default();
    for (id, node) in graph
        .nodes()
        .iter()
        .enumerate()
        .filter(|&(id, _)| needed[id])
    {
        let id = id as NodeId;
        let inputs = specs(&node.inputs);
        let outputs: Vec<_> = node
            .outputs
            .iter()
            .map(|&v| graph.value(v).spec.clone())
            .collect();
        let cost = node.op.cost(&inputs, &outputs, from.threads);
        let mut positions = Vec::new();
        let mut read = Vec::new();
        let mut cells = Vec::new();
        for (position, input) in node.inputs.iter().enumerate() {
            match input.source {
                Source::Value(value) => {
                    positions.push(position);
                    read.push(values.number(value));
                }
                Source::Cell(cell, version) => {
                    if !node.writes.iter().any(|&(written, _)| written == cell) {
                        cells.push((cell, version));
                    }
                }
            }
        }
        let in_place = node
            .op
            .in_place(&inputs, &outputs)
            .iter()
            .filter(|&&(i, o)| whole_value(graph, node, i) && outputs[o].layout == inputs[i].layout)
            .filter_map(|&(i, o)| {
                let position = positions.iter().position(|&position| position == i)?;
                Some((position as u32, o as u32))
            })
            .collect();
        problem.nodes.push(plan::Node {
            inputs: read,
            outputs: node
                .outputs
                .iter()
                .map(|&value| values.number(value))
                .collect(),
            reads: cells,
            writes: node.writes.to_vec(),
            in_place,
            scratch_bytes: cost.scratch_bytes,
            seconds: from.rates.seconds(&cost),
            effect: match node.op.effect() {
                Effect::Pure | Effect::Random => plan::Effect::Repeatable,
                Effect::WritesCell | Effect::Collective => plan::Effect::Once,
                Effect::Guard => plan::Effect::Guard,
            },
            done: from.progress.done.contains(&id),
        });
        nodes.push(id);
    }
    let pinned = pinned_values(graph);
    problem.values = values
        .order
        .iter()
        .map(|&id| value(from, id, &pinned))
        .collect();
    Compiled {
        problem,
        nodes,
        values: values.order,
    }
}

fn value(from: &Posed<'_>, id: ValueId, pinned: &BTreeSet<ValueId>) -> plan::Value {
    let home = if (from.external)(id) {
        Home::External
    } else {
        match from.progress.residents.get(&id) {
            Some(&offset) => Home::Resident { offset },
            None => Home::Arena,
        }
    };
    plan::Value {
        bytes: from.graph.value(id).spec.bytes(),
        home,
        pin: if pinned.contains(&id) {
            Pin::Recompute
        } else {
            Pin::Free
        },
        wanted: from.wanted.contains(&id),
    }
}

/// Whether input `i` reads all of a value, so that an output may take over its buffer.
fn whole_value(graph: &Graph, node: &highwater_graph::Node, i: usize) -> bool {
    match node.inputs[i].source {
        Source::Value(id) => {
            let whole = &graph.value(id).spec.layout;
            node.inputs[i].spec.layout.covers(whole.numel())
        }
        Source::Cell(..) => false,
    }
}

/// Values made inside a `checkpoint` and used, in the forward part, only there.
fn pinned_values(graph: &Graph) -> BTreeSet<ValueId> {
    let mut pinned = BTreeSet::new();
    for node in graph.nodes() {
        if node.site.checkpoint.is_some() && node.site.phase == Phase::Forward {
            pinned.extend(node.outputs.iter().copied());
        }
    }
    if pinned.is_empty() {
        return pinned;
    }
    for node in graph
        .nodes()
        .iter()
        .filter(|node| node.site.phase == Phase::Forward)
    {
        for input in &node.inputs {
            if let Source::Value(id) = input.source {
                let made_in = graph
                    .value(id)
                    .producer
                    .map(|(n, _)| graph.node(n).site.checkpoint);
                if made_in.is_some_and(|checkpoint| checkpoint != node.site.checkpoint) {
                    pinned.remove(&id);
                }
            }
        }
    }
    pinned
}

fn needed_nodes(
    from: &Posed<'_>,
    targets: impl IntoIterator<Item = ValueId>,
    effects: bool,
) -> Vec<bool> {
    let graph = from.graph;
    let mut needed = vec![false; graph.nodes().len()];
    let produce = |needed: &mut Vec<bool>, id: ValueId| {
        if let Some((node, _)) = graph.value(id).producer {
            needed[node as usize] = true;
        }
    };
    for target in targets {
        produce(&mut needed, target);
    }
    for (id, node) in graph.nodes().iter().enumerate().rev() {
        let done = from.progress.done.contains(&(id as NodeId));
        let effect = !node.op.effect().is_repeatable();
        needed[id] |= effects && effect && !done;
        // An external value of a node that ran is there for good.
        needed[id] &= !(done && (effect || node.outputs.iter().all(|&v| (from.external)(v))));
        if needed[id] {
            for input in &node.inputs {
                if let Source::Value(value) = input.source {
                    produce(&mut needed, value);
                }
            }
        }
    }
    needed
}

/// Numbers the graph's values in the order in which a problem meets them.
#[derive(Default)]
struct Numbering {
    order: Vec<ValueId>,
    numbers: BTreeMap<ValueId, plan::ValueId>,
}

impl Numbering {
    fn number(&mut self, id: ValueId) -> plan::ValueId {
        *self.numbers.entry(id).or_insert_with(|| {
            self.order.push(id);
            self.order.len() as plan::ValueId - 1
        })
    }
}

/// Families of plans by problem. A hit compares the whole problem, so a hash that collides costs
/// time, never correctness.
#[derive(Debug, Default)]
pub(crate) struct PlanCache {
    /// Least recently used first.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    policy: Policy,
    family: Arc<(Problem, Family)>,
    /// Plans of the family, by position, that were verified.
    verified: BTreeSet<usize>,
}

impl Entry {
    fn position(&self, plan: &Plan) -> Option<usize> {
        self.family
            .1
            .plans()
            .iter()
            .position(|other| std::ptr::eq(other, plan))
    }
}

/// The most structures that are remembered.
const CACHED_STRUCTURES: usize = 32;

impl PlanCache {
    /// The family of a problem, found or built.
    pub(crate) fn family(
        &mut self,
        problem: &Problem,
        policy: Policy,
    ) -> Result<Arc<(Problem, Family)>, highwater_plan::ProblemError> {
        let hash = hash(problem);
        let entry = match self.find(hash, problem, policy) {
            Some(index) => self.entries.remove(index),
            None => {
                let family = Arc::new((problem.clone(), Family::build(problem, policy)?));
                Entry {
                    hash,
                    policy,
                    family,
                    verified: BTreeSet::new(),
                }
            }
        };
        let family = Arc::clone(&entry.family);
        if self.entries.len() == CACHED_STRUCTURES {
            self.entries.remove(0);
        }
        self.entries.push(entry);
        Ok(family)
    }

    fn find(&self, hash: u64, problem: &Problem, policy: Policy) -> Option<usize> {
        self.entries.iter().position(|entry| {
            entry.hash == hash && entry.policy == policy && entry.family.0 == *problem
        })
    }

    /// Whether `plan`, of the family found last, was never verified.
    pub(crate) fn is_first_use(&self, plan: &Plan) -> bool {
        let entry = self.entries.last();
        entry.is_none_or(|entry| {
            entry
                .position(plan)
                .is_none_or(|index| !entry.verified.contains(&index))
        })
    }

    /// Notes that `plan`, of the family found last, was verified.
    pub(crate) fn note_verified(&mut self, plan: &Plan) {
        if let Some(entry) = self.entries.last_mut()
            && let Some(index) = entry.position(plan)
        {
            entry.verified.insert(index);
        }
    }
}

fn hash(problem: &Problem) -> u64 {
    let mut hasher = DefaultHasher::new();
    problem.values.hash(&mut hasher);
    for node in &problem.nodes {
        (&node.inputs, &node.outputs, &node.reads, &node.writes).hash(&mut hasher);
        (node.scratch_bytes, node.seconds.to_bits(), node.done).hash(&mut hasher);
    }
    hasher.finish()
}
