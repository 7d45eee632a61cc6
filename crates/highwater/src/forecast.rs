//! What a step will take, before it runs: who holds the bytes at the peak, what each budget costs.

use crate::compile::Compiled;
use crate::execute::describe;
use highwater_graph::Graph;
use highwater_plan::{Family, Plan, holders};
use serde::Serialize;
use std::collections::BTreeMap;

/// A step as planned. All bytes are of the whole process: plan, state and reserve, where they are
/// not said to be of the arena alone.
#[derive(Debug, Clone, Serialize)]
pub struct Forecast {
    /// Whether it runs inside the budget.
    pub fits: bool,
    /// The budget.
    pub budget_bytes: u64,
    /// The least budget that works.
    pub floor_bytes: u64,
    /// The operation that sets it: name, module, source line.
    pub floor_at: String,
    /// What the chosen plan takes at most; of the least plan, if none fits.
    pub peak_bytes: u64,
    /// Predicted seconds of a step.
    pub seconds_per_step: f64,
    /// Nodes that run again.
    pub recomputed_nodes: u32,
    /// Predicted seconds of those.
    pub recompute_seconds: f64,
    /// Height of the plan's arena.
    pub arena_bytes: u64,
    /// Parameters, moments, inputs, kept values.
    pub state_bytes: u64,
    /// Code, heap, stacks, libraries' buffers.
    pub reserve_bytes: u64,
    /// Where the peak is: operation, module, source line.
    pub peak_at: String,
    /// Who holds the arena's bytes there, largest first.
    pub holders: Vec<Holder>,
    /// Every budget's price: the plans there are, fastest first.
    pub curve: Vec<Price>,
    /// The instruction list.
    pub plan: Plan,
}

/// Values of one operation that are held at the peak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Bytes together.
    pub bytes: u64,
    /// How many values.
    pub values: u32,
    /// Category and operation, such as `activation of gelu`.
    pub what: String,
}

/// What one plan costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Price {
    /// Bytes of the process.
    pub bytes: u64,
    /// Predicted seconds of a step.
    pub seconds_per_step: f64,
    /// Nodes that run again.
    pub recomputed_nodes: u32,
}

/// What surrounds the arena, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings {
    pub(crate) state: u64,
    pub(crate) reserve: u64,
    pub(crate) budget: u64,
}

/// Describes `chosen`, or the least plan if there is none.
pub(crate) fn forecast(
    graph: &Graph,
    compiled: &Compiled,
    family: &Family,
    chosen: Option<&Plan>,
    around: Surroundings,
) -> Option<Forecast> {
    let plans = family.plans(&compiled.problem);
    let plan = chosen.or(plans.last())?;
    let beside = around.state + around.reserve;
    let node = |id: highwater_plan::NodeId| {
        compiled
            .nodes
            .get(id as usize)
            .map(|&id| describe(graph.node(id)))
            .unwrap_or_default()
    };
    let running = |instruction: u32| match &plan.instructions.get(instruction as usize)?.action {
        highwater_plan::Action::Run { node, .. } | highwater_plan::Action::Guard { node } => {
            Some(*node)
        }
        _ => None,
    };
    Some(Forecast {
        fits: chosen.is_some(),
        budget_bytes: around.budget,
        floor_bytes: family.floor().arena_bytes + beside,
        floor_at: family.floor().node.map(node).unwrap_or_default(),
        peak_bytes: plan.arena_bytes + beside,
        seconds_per_step: plan.seconds,
        recomputed_nodes: plan.recomputed_nodes,
        recompute_seconds: plan.recompute_seconds,
        arena_bytes: plan.arena_bytes,
        state_bytes: around.state,
        reserve_bytes: around.reserve,
        peak_at: running(plan.peak_instruction).map(node).unwrap_or_default(),
        holders: at_peak(graph, compiled, plan),
        curve: plans.iter().map(|plan| price(plan, beside)).collect(),
        plan: plan.clone(),
    })
}

fn price(plan: &Plan, beside: u64) -> Price {
    Price {
        bytes: plan.arena_bytes + beside,
        seconds_per_step: plan.seconds,
        recomputed_nodes: plan.recomputed_nodes,
    }
}

fn at_peak(graph: &Graph, compiled: &Compiled, plan: &Plan) -> Vec<Holder> {
    let held = holders(&compiled.problem, plan, plan.peak_instruction as usize);
    let mut groups: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    let mut add = |what: String, bytes: u64| {
        let group = groups.entry(what).or_default();
        *group = (group.0 + bytes, group.1 + 1);
    };
    for (value, bytes) in held.values {
        let value = graph.value(compiled.values[value as usize]);
        let made = value
            .producer
            .map_or("input", |(node, _)| graph.node(node).op.name());
        add(
            format!("{} of {made}", crate::store::kind(value.category)),
            bytes,
        );
    }
    if held.scratch_bytes > 0 {
        add("workspace".to_owned(), held.scratch_bytes);
    }
    let holder = |(what, (bytes, values))| Holder {
        bytes,
        values,
        what,
    };
    let mut list: Vec<Holder> = groups.into_iter().map(holder).collect();
    list.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    list
}
