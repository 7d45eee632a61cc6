//! From the pending graph to the planner's problem.

use crate::problem::compiled::{Compiled, Origin};
use crate::problem::fuse::{FusedNodes, Fusing, fuse};
use crate::problem::node::{PosedNode, Specs};
use crate::problem::numbers::Numbers;
use crate::problem::pins::pinned_values;
use crate::problem::posed::Posed;
use highwater_graph::{CellId, NodeId, Source, ValueId};
use highwater_plan::{self as plan, Home, Pin, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// What kernels want their buffers to start at multiples of, in bytes.
const KERNEL_ALIGN: u64 = plan::ALIGN;

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
        nodes: Vec::with_capacity(nodes.len()),
        ..Problem::default()
    };
    let mut works = Vec::with_capacity(nodes.len());
    let mut all_variants = Vec::with_capacity(nodes.len());
    let mut specs = Specs::default();
    for &id in &nodes {
        let of = fused.get(&id).unwrap_or_else(|| from.graph.node(id));
        specs.read(from.graph, of);
        let node = PosedNode::new(from, (id, of), &specs);
        let (work, variants) = node.work();
        problem
            .nodes
            .push(node.pose(&work, &variants, &mut numbers));
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
