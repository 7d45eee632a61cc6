//! From the pending graph to the planner's problem, and the cache of what it answered.

use crate::Rates;
use crate::forecast::Told;
use highwater_graph::{
    CellId, CheckpointPolicy, Effect, Graph, NodeId, Phase, Source, ValueId, Version, specs,
};
use highwater_plan::{self as plan, Families, Home, Pin, Plan, Policy, Problem};
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
    let needed = needed_nodes(from, targets, effects);
    let mut numbers = Numbers::default();
    let nodes: Vec<NodeId> = (0..needed.len() as NodeId)
        .filter(|&id| needed[id as usize])
        .collect();
    let posed = nodes
        .iter()
        .map(|&id| node(from, id, &mut numbers))
        .collect();
    let pinned = pinned_values(from.graph);
    let values = numbers
        .order
        .iter()
        .map(|&id| value(from, id, &pinned))
        .collect();
    let problem = Problem {
        nodes: posed,
        values,
    };
    Compiled {
        problem,
        nodes,
        values: numbers.order,
    }
}

fn node(from: &Posed<'_>, id: NodeId, numbers: &mut Numbers) -> plan::Node {
    let (graph, node) = (from.graph, from.graph.node(id));
    let inputs = specs(&node.inputs);
    let outputs: Vec<_> = node
        .outputs
        .iter()
        .map(|&v| graph.value(v).spec.clone())
        .collect();
    let cost = node.op.cost(&inputs, &outputs, from.threads);
    let mut positions = Vec::new();
    let mut read = Vec::new();
    let mut reads = Vec::new();
    for (position, input) in node.inputs.iter().enumerate() {
        match input.source {
            Source::Value(value) => {
                positions.push(position);
                read.push(numbers.value(value));
            }
            Source::Cell(cell, version) => {
                if !node.writes.iter().any(|&(written, _)| written == cell) {
                    reads.push(numbers.cell(graph, cell, version));
                }
            }
        }
    }
    let whole =
        |i: usize, o: usize| whole_value(graph, node, i) && outputs[o].layout == inputs[i].layout;
    let pair = |&(i, o): &(usize, usize)| {
        let position = positions.iter().position(|&position| position == i)?;
        whole(i, o).then_some((position as u32, o as u32))
    };
    plan::Node {
        inputs: read,
        outputs: node
            .outputs
            .iter()
            .map(|&value| numbers.value(value))
            .collect(),
        reads,
        writes: node
            .writes
            .iter()
            .map(|&(cell, v)| numbers.cell(graph, cell, v))
            .collect(),
        in_place: node
            .op
            .in_place(&inputs, &outputs)
            .iter()
            .filter_map(pair)
            .collect(),
        scratch_bytes: cost.scratch_bytes,
        seconds: from.rates.seconds(&cost),
        effect: match node.op.effect() {
            Effect::Pure | Effect::Random => plan::Effect::Repeatable,
            Effect::WritesCell | Effect::Collective => plan::Effect::Once,
            Effect::Guard => plan::Effect::Guard,
        },
        done: from.progress.done.contains(&id),
    }
}

fn value(from: &Posed<'_>, id: ValueId, pinned: &BTreeMap<ValueId, Pin>) -> plan::Value {
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
        pin: pinned.get(&id).copied().unwrap_or_default(),
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

/// What the user decided about values made inside a checkpoint. One that is used outside it in the
/// forward part is recomputed only if the planner sees fit.
fn pinned_values(graph: &Graph) -> BTreeMap<ValueId, Pin> {
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
    let region = |node: &highwater_graph::Node| node.site.checkpoint.map(|found| found.region);
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

/// Numbers values and cells in the order in which a problem meets them, and versions from the one in
/// memory, so that every step of a loop poses the same problem.
#[derive(Default)]
struct Numbers {
    /// The graph's values, by number.
    order: Vec<ValueId>,
    values: BTreeMap<ValueId, plan::ValueId>,
    cells: BTreeMap<CellId, plan::CellId>,
}

impl Numbers {
    fn value(&mut self, id: ValueId) -> plan::ValueId {
        *self.values.entry(id).or_insert_with(|| {
            self.order.push(id);
            self.order.len() as plan::ValueId - 1
        })
    }

    fn cell(&mut self, graph: &Graph, id: CellId, version: Version) -> (plan::CellId, Version) {
        let next = self.cells.len() as plan::CellId;
        let number = *self.cells.entry(id).or_insert(next);
        let in_memory = graph.cell(id).map_or(0, |cell| cell.evaluated);
        (number, version.saturating_sub(in_memory))
    }
}

/// Chosen plans by problem. A hit compares the whole problem, so a hash that collides costs time,
/// never correctness. Families are not kept: a plan's price list takes megabytes.
#[derive(Debug, Default)]
pub(crate) struct PlanCache {
    /// Least recently used first.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    problem: Problem,
    plan: Arc<Plan>,
    /// From this budget on there is a faster plan.
    faster_from: u64,
    /// What was said about it.
    told: Option<Arc<Told>>,
}

/// The planner's answer.
#[derive(Debug)]
pub(crate) enum Choice {
    /// A plan that was chosen before, and what was said about it.
    Known(Arc<Plan>, Arc<Told>),
    /// A plan that nobody has verified yet, with its family.
    New(Arc<Plan>, Box<Families>),
    /// Nothing fits.
    Refused(Box<Families>),
}

/// The most plans that are remembered.
const CACHED_PLANS: usize = 32;

impl PlanCache {
    /// The fastest plan of a problem that fits, found or made. `before_planning` runs before a
    /// family is built, which takes memory.
    pub(crate) fn choose(
        &mut self,
        problem: &Problem,
        policy: Policy,
        budget: u64,
        before_planning: impl FnOnce(),
    ) -> Result<Choice, highwater_plan::ProblemError> {
        let hash = hash(problem);
        let known = |entry: &Entry| {
            let fits = (entry.plan.arena_bytes..entry.faster_from).contains(&budget);
            fits && entry.hash == hash && entry.problem == *problem
        };
        if let Some(index) = self.entries.iter().position(known) {
            let entry = self.entries.remove(index);
            let found = entry
                .told
                .clone()
                .map(|told| Choice::Known(Arc::clone(&entry.plan), told));
            // Without a word on it, it was never verified either.
            if let Some(found) = found {
                self.entries.push(entry);
                return Ok(found);
            }
        }
        before_planning();
        let family = Box::new(Families::build(problem, policy)?);
        let Ok(plan) = family.choose(budget).cloned() else {
            return Ok(Choice::Refused(family));
        };
        let plans = family.plans();
        let faster = plans.filter(|other| other.seconds < plan.seconds);
        let faster_from = faster
            .map(|other| other.arena_bytes)
            .min()
            .unwrap_or(u64::MAX);
        let plan = Arc::new(plan);
        if self.entries.len() == CACHED_PLANS {
            self.entries.remove(0);
        }
        let (problem, plan_kept) = (problem.clone(), Arc::clone(&plan));
        self.entries.push(Entry {
            hash,
            problem,
            plan: plan_kept,
            faster_from,
            told: None,
        });
        Ok(Choice::New(plan, family))
    }

    /// Remembers what was said about a plan.
    pub(crate) fn note(&mut self, plan: &Arc<Plan>, told: &Arc<Told>) {
        let mut entries = self.entries.iter_mut().rev();
        if let Some(entry) = entries.find(|entry| Arc::ptr_eq(&entry.plan, plan)) {
            entry.told = Some(Arc::clone(told));
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
