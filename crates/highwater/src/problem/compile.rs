//! From the pending graph to the planner's problem.

use crate::pending::Progress;
use crate::problem::clock::{Clock, Work};
use crate::problem::fuse::{FusedNodes, Fusing, fuse};
use crate::problem::pins::pinned_values;
use highwater_graph::{
    BuildMixer, CellId, Effect, Graph, Node, NodeId, Source, Spec, ValueId, Version,
};
use highwater_ops::{Kernels, Registered};
use highwater_plan::{self as plan, BLOCK, Home, Lane, Pin, Problem, Tier};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// What kernels want their buffers to start at multiples of, in bytes.
const KERNEL_ALIGN: u64 = plan::ALIGN;

/// The problem that part of a graph poses, with the way back.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) problem: Arc<Problem>,
    /// The graph's node for each of the problem's.
    pub(crate) nodes: Vec<NodeId>,
    /// What stands for several nodes of the graph, by the last of them.
    fused: FusedNodes,
    /// How many of the graph's nodes those of the problem stand for.
    pub(crate) stands_for: usize,
    /// What each of them does.
    pub(crate) work: Vec<Work>,
    /// What runs of them do that leave outputs out.
    pub(crate) variants: Vec<Variants>,
    /// What each of the problem's values is in the graph.
    pub(crate) values: Vec<Origin>,
    /// What posing it took.
    pub(crate) seconds: f64,
}

/// What a value of a problem is in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Value(ValueId),
    /// The bytes of a cell, whatever its version.
    Cell(CellId),
}

impl Compiled {
    /// Whether nodes of the problem stand for several.
    pub(crate) fn is_merged(&self) -> bool {
        !self.fused.is_empty()
    }

    /// A node of the problem, in the graph that it is of; what makes a value of it.
    pub(crate) fn node<'a>(&'a self, graph: &'a Graph, id: NodeId) -> &'a Node {
        self.fused.get(&id).unwrap_or_else(|| graph.node(id))
    }

    /// The graph's value, unless it is a cell.
    pub(crate) fn value(&self, id: plan::ValueId) -> Option<ValueId> {
        match self.values[id.index()] {
            Origin::Value(value) => Some(value),
            Origin::Cell(_) => None,
        }
    }

    /// The cell that a value of the problem stands for, if it does for one.
    pub(crate) fn cell(&self, id: plan::ValueId) -> Option<CellId> {
        match self.values[id.index()] {
            Origin::Value(_) => None,
            Origin::Cell(cell) => Some(cell),
        }
    }

    /// The cells that may be elsewhere than in memory of their own.
    pub(crate) fn cells(&self) -> impl Iterator<Item = CellId> {
        self.values.iter().filter_map(|&origin| match origin {
            Origin::Value(_) => None,
            Origin::Cell(cell) => Some(cell),
        })
    }

    /// Where a plan wants them: on which tier, if not in memory.
    pub(crate) fn homes(&self, plan: &plan::Plan) -> Vec<(CellId, Option<Tier>)> {
        let homes = plan.homes.iter();
        let homes = homes.filter_map(|&(value, tier)| Some((self.cell(value)?, tier)));
        homes.collect()
    }

    /// What rooms cost beside what plans count for the cells that they decide about: whole pages.
    pub(crate) fn rounding(
        &self,
        cost: impl Fn(u64) -> u64,
        counted: impl Fn(u64) -> u64,
    ) -> Rounding {
        let values = self.problem.values.iter();
        let open = values.filter(|value| value.home == Home::Cell(None));
        let lost = |value: &plan::Value| cost(value.bytes).saturating_sub(counted(value.bytes));
        Rounding(open.map(lost).sum())
    }
}

/// What cells in memory take at most beside what plans count, where there are tiers below it. Arenas, like
/// cells, take whole pages.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rounding(u64);

impl Rounding {
    /// What a plan may take of so many bytes.
    pub(crate) fn usable(self, bytes: u64) -> u64 {
        (bytes - bytes % page_bytes()).saturating_sub(self.0)
    }

    /// The least that a budget has to be for a plan of so many bytes.
    pub(crate) fn least_budget(self, plan_bytes: u64) -> u64 {
        whole_pages(plan_bytes + self.0)
    }
}

/// What arenas and cells of so many bytes take.
pub(crate) fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(page_bytes())
}

/// What the memory of kernels and cells is a multiple of; on disks blocks are.
fn page_bytes() -> u64 {
    highwater_memory::page_bytes().max(BLOCK)
}

/// What a problem is made from.
pub(crate) struct Posed<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) progress: &'a Progress,
    /// Values that lie, or shall lie, in storage of their own.
    pub(crate) external: &'a dyn Fn(ValueId) -> bool,
    /// Values that must be there when the plan ends, in the arena or outside it.
    pub(crate) wanted: &'a BTreeSet<ValueId>,
    /// The homes of the cells that are values of the problem; the others are in memory of their own.
    pub(crate) homes: &'a dyn Fn(CellId) -> Option<Home>,
    /// What the planner is told of tiers below memory, if these cells are values of the problem.
    pub(crate) tiers: &'a dyn Fn(&BTreeSet<CellId>) -> plan::Tiers,
    pub(crate) threads: usize,
    pub(crate) clock: &'a Clock,
    pub(crate) kernels: &'a Kernels,
    /// Whether pointwise nodes are merged.
    pub(crate) fuses: bool,
}

/// Poses the problem of computing `targets` (and, if `effects`, of everything that writes or guards
/// cells). Nodes that none of them needs are left out.
pub(crate) fn compile(
    from: &Posed<'_>,
    targets: impl IntoIterator<Item = ValueId>,
    effects: bool,
) -> Compiled {
    let started = Instant::now();
    let targets: BTreeSet<ValueId> = targets.into_iter().collect();
    let mut needed = needed_nodes(from, &targets, effects);
    let stands_for = needed.iter().filter(|&&needed| needed).count();
    let pinned = pinned_values(from.graph);
    let fused = fused(from, &targets, &pinned, &mut needed);
    let nodes: Vec<NodeId> = NodeId::below(needed.len())
        .filter(|id| needed[id.index()])
        .collect();
    let mut numbers = Numbers::new(from.graph);
    let mut problem = Problem {
        align: KERNEL_ALIGN,
        ..Problem::default()
    };
    let (mut works, mut all_variants) = (Vec::new(), Vec::new());
    let mut specs = Specs::default();
    problem.nodes.reserve(nodes.len());
    works.reserve(nodes.len());
    all_variants.reserve(nodes.len());
    for &id in &nodes {
        let of = fused.get(&id).unwrap_or_else(|| from.graph.node(id));
        specs.read(from.graph, of);
        // A node that no kernel takes is not made; if one came about, running it says so.
        let kernel = of.kernel.map(|kernel| from.kernels.kernel(kernel));
        let (work, variants) = work(from, of, &specs, kernel);
        let posed = node(
            from,
            (id, of),
            &specs,
            (&work, &variants, kernel),
            &mut numbers,
        );
        problem.nodes.push(posed);
        works.push(work);
        all_variants.push(variants);
    }
    let values = numbers.order.iter().map(|&origin| match origin {
        Origin::Value(id) => value(from, id, &pinned),
        Origin::Cell(id) => cell(from, id),
    });
    problem.values = values.collect();
    let cells = numbers.cell_values.keys().copied().collect();
    problem.tiers = (from.tiers)(&cells);
    Compiled {
        problem: Arc::new(problem),
        nodes,
        fused,
        stands_for,
        work: works,
        variants: all_variants,
        values: numbers.order,
        seconds: started.elapsed().as_secs_f64(),
    }
}

/// What runs of a node do that leave outputs out: a bit for each of those, and the work.
pub(crate) type Variants = Vec<(u32, Work)>;

/// What the node at hand reads and fills; the buffers serve all nodes.
#[derive(Default)]
struct Specs {
    inputs: Vec<Spec>,
    outputs: Vec<Spec>,
}

impl Specs {
    fn read(&mut self, graph: &Graph, node: &Node) {
        self.inputs.clear();
        self.inputs
            .extend(node.inputs.iter().map(|input| input.spec.clone()));
        self.outputs.clear();
        let outputs = node.outputs.iter();
        self.outputs
            .extend(outputs.map(|&id| graph.value(id).spec.clone()));
    }
}

/// What a node does: all of it, and the variants that a run may be.
fn work(
    from: &Posed<'_>,
    node: &Node,
    specs: &Specs,
    kernel: Option<&Registered>,
) -> (Work, Variants) {
    let Specs { inputs, outputs } = specs;
    let whole = Work::new(node.op.as_ref(), inputs, outputs, from.threads);
    let mut variants = Variants::new();
    for o in 0..outputs.len().min(32) {
        let inside = node.traits.effect.is_repeatable() && !(from.external)(node.outputs[o]);
        let saved = kernel.filter(|_| inside);
        let saved = saved.and_then(|kernel| kernel.optional(node.op.as_ref(), o, inputs, outputs));
        if let Some(saved) = saved {
            for i in 0..=variants.len() {
                let (mask, rest) = i.checked_sub(1).map_or((0, whole), |i| variants[i]);
                variants.push((mask | 1 << o, rest.without(o, saved)));
            }
        }
    }
    (whole, variants)
}

fn node(
    from: &Posed<'_>,
    (id, node): (NodeId, &Node),
    specs: &Specs,
    (work, variants, kernel): (&Work, &Variants, Option<&Registered>),
    numbers: &mut Numbers,
) -> plan::Node {
    let graph = from.graph;
    let Specs { inputs, outputs } = specs;
    let (op, written) = (node.op.as_ref(), &node.traits.writes);
    let mut positions = SmallVec::<[usize; 8]>::new();
    let mut read = Vec::with_capacity(inputs.len());
    let (mut reads, mut rewrites) = (Vec::new(), Vec::new());
    for (position, input) in node.inputs.iter().enumerate() {
        match input.source {
            Source::Value(value) => {
                positions.push(position);
                read.push(numbers.value(value));
            }
            Source::Cell(cell, version) => {
                let writes = written.contains(&position);
                if !writes {
                    if node.writes.iter().any(|&(written, _)| written == cell) {
                        // Read where it is written, through the same buffer.
                        continue;
                    }
                    reads.push(numbers.cell(graph, cell, version));
                }
                if (from.homes)(cell).is_some() {
                    if writes {
                        rewrites.push(read.len() as u32);
                    }
                    positions.push(position);
                    read.push(numbers.cell_value(cell));
                }
            }
        }
    }
    let pair = |&(i, o): &(usize, usize)| {
        let position = positions.iter().position(|&position| position == i)?;
        whole_value(graph, node, i).then_some((position as u32, o as u32))
    };
    let (made, writes) = (node.outputs.iter(), node.writes.iter());
    plan::Node {
        inputs: read,
        outputs: made.map(|&value| numbers.value(value)).collect(),
        reads,
        writes: writes
            .map(|&(cell, v)| numbers.cell(graph, cell, v))
            .collect(),
        rewrites,
        in_place: kernel.map_or_else(Vec::new, |kernel| {
            let pairs = kernel.in_place(op, inputs, outputs);
            pairs.iter().filter_map(pair).collect()
        }),
        scratch_bytes: kernel.map_or(0, |kernel| {
            kernel.scratch_bytes(op, inputs, outputs, from.threads)
        }),
        // What guards where that is free is no reason to prefer another plan.
        seconds: if node.traits.is_soft {
            0.0
        } else {
            from.clock.told(work)
        },
        optional: optional(from.clock, work, variants),
        effect: match node.traits.effect {
            Effect::Pure | Effect::Random => plan::Effect::Repeatable,
            Effect::WritesCell | Effect::Collective => plan::Effect::Once,
            Effect::Guard => plan::Effect::Guard,
        },
        soft: node.traits.is_soft,
        lane: match node.traits.effect {
            Effect::Collective => Lane::Communicate,
            _ => Lane::Compute,
        },
        done: from.progress.done.contains(&id),
    }
}

/// The outputs that a run may leave out, with the seconds that this saves.
fn optional(clock: &Clock, whole: &Work, variants: &Variants) -> Vec<(u32, f64)> {
    let seconds = clock.told(whole);
    let mut left = seconds;
    let alone = variants.iter().filter(|(mask, _)| mask.is_power_of_two());
    let saved = alone.map(|(mask, work)| {
        let saved = (seconds - clock.told(work)).clamp(0.0, left);
        left -= saved;
        (mask.trailing_zeros(), saved)
    });
    saved.collect()
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

fn cell(from: &Posed<'_>, id: CellId) -> plan::Value {
    plan::Value {
        bytes: from.graph.cell(id).map_or(0, |cell| cell.spec.bytes()),
        home: (from.homes)(id).unwrap_or(Home::External),
        pin: Pin::Free,
        wanted: false,
    }
}

/// Whether input `i` reads all of a value, so that an output may take over its buffer.
fn whole_value(graph: &Graph, node: &Node, i: usize) -> bool {
    match node.inputs[i].source {
        Source::Value(id) => {
            let whole = &graph.value(id).spec.layout;
            let seen = &node.inputs[i].spec.layout;
            seen == whole || seen.covers(whole.numel())
        }
        Source::Cell(..) => false,
    }
}

/// Merges nodes, but for those whose results have to be there by themselves.
fn fused(
    from: &Posed<'_>,
    targets: &BTreeSet<ValueId>,
    pinned: &BTreeMap<ValueId, Pin>,
    needed: &mut [bool],
) -> FusedNodes {
    if !from.fuses {
        return FusedNodes::new();
    }
    let stays = |id: ValueId| {
        let producer = from.graph.value(id).producer;
        let kept = matches!(pinned.get(&id), Some(Pin::Keep | Pin::PreferKeep));
        let wanted = from.wanted.contains(&id) || targets.contains(&id);
        let done = producer.is_some_and(|(node, _)| from.progress.done.contains(&node));
        kept || wanted || done || (from.external)(id)
    };
    let is_free = |source| match source {
        Source::Value(id) => (from.external)(id),
        Source::Cell(id, _) => (from.homes)(id).is_none(),
    };
    let fusing = Fusing {
        graph: from.graph,
        kernels: from.kernels,
        stays: &stays,
        is_free: &is_free,
    };
    fuse(&fusing, needed)
}

fn needed_nodes(from: &Posed<'_>, targets: &BTreeSet<ValueId>, effects: bool) -> Vec<bool> {
    let graph = from.graph;
    let mut needed = vec![false; graph.nodes().len()];
    let produce = |needed: &mut Vec<bool>, id: ValueId| {
        if let Some((node, _)) = graph.value(id).producer {
            needed[node.index()] = true;
        }
    };
    for &target in targets {
        produce(&mut needed, target);
    }
    for (id, node) in graph.nodes().iter().enumerate().rev() {
        let done = from.progress.done.contains(&NodeId::new(id));
        let effect = !node.traits.effect.is_repeatable();
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
    /// The graph's values and cells, by number.
    order: Vec<Origin>,
    /// The problem's number of each of the graph's values, once it has one.
    values: Vec<Option<plan::ValueId>>,
    cell_values: BTreeMap<CellId, plan::ValueId>,
    #[expect(clippy::disallowed_types, reason = "its order is never read")]
    cells: std::collections::HashMap<CellId, plan::CellId, BuildMixer>,
}

impl Numbers {
    fn new(graph: &Graph) -> Self {
        let values = graph.values().len();
        Self {
            order: Vec::with_capacity(values),
            values: vec![None; values],
            ..Self::default()
        }
    }

    fn value(&mut self, id: ValueId) -> plan::ValueId {
        *self.values[id.index()].get_or_insert_with(|| {
            self.order.push(Origin::Value(id));
            plan::ValueId::new(self.order.len() - 1)
        })
    }

    /// The bytes of a cell, as a value.
    fn cell_value(&mut self, id: CellId) -> plan::ValueId {
        *self.cell_values.entry(id).or_insert_with(|| {
            self.order.push(Origin::Cell(id));
            plan::ValueId::new(self.order.len() - 1)
        })
    }

    fn cell(
        &mut self,
        graph: &Graph,
        id: CellId,
        version: Version,
    ) -> (plan::CellId, plan::Version) {
        let next = plan::CellId::new(self.cells.len());
        let number = *self.cells.entry(id).or_insert(next);
        let in_memory = graph.cell(id).map(|cell| cell.evaluated);
        (number, version.since(in_memory.unwrap_or_default()))
    }
}
