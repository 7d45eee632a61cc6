//! Why no plan of a problem fits.

use crate::Error;
use crate::engine::Engine;
use crate::engine::state::State;
use crate::error::describe;
use crate::problem::compiled::Compiled;
use crate::store::cells;
use highwater_graph::Graph;
use highwater_memory::Bytes;
use highwater_plan::{Families, Problem, Tier};

impl Engine {
    /// The error for a refused problem: what it needs at least, at which node, and what is largest there.
    pub(crate) fn refusal(&self, state: &State, compiled: &Compiled, families: &Families) -> Error {
        let graph = &state.pending.graph;
        let floor = families.floor(&compiled.problem);
        let (stated, tier) = self.refusing(state);
        let node = floor.node.and_then(|id| compiled.nodes.get(id.index()));
        let at = node.map(|&id| describe(compiled.node(graph, id)));
        let largest = floor.holders.iter().max_by_key(|&&(_, bytes)| bytes);
        let holder = largest.map(|&(value, bytes)| {
            let name = name(graph, compiled, value);
            format!("{name} ({})", Bytes(bytes))
        });
        let tensors = self.least_budget(compiled, floor.arena_bytes) + self.beside(state, compiled);
        Error::OverBudget {
            tier,
            floor_bytes: stated.whole(tensors),
            budget_bytes: stated.budget,
            reserve_bytes: stated.process(tensors),
            host_bytes: stated.host,
            kept_bytes: self.0.store.kept_bytes(),
            full: self.full_tiers(&compiled.problem, families),
            at: at.unwrap_or_default(),
            holder: holder.unwrap_or_else(|| "scratch memory".into()),
        }
    }

    /// The tiers that have no room left, at the floor, for the largest value that might wait there.
    fn full_tiers(&self, problem: &Problem, families: &Families) -> Vec<Tier> {
        let floor = families.floor(problem);
        let Ok(least) = families.choose(problem, floor.arena_bytes) else {
            return Vec::new();
        };
        let largest = floor.holders.iter().map(|&(_, bytes)| bytes).max();
        let largest = largest.unwrap_or(0);
        let is_full = |tier: &Tier| {
            let traffic = least.traffic(*tier);
            let taken = traffic.home_bytes + traffic.spill_bytes;
            let link = problem.tiers.link(*tier);
            link.is_some_and(|link| taken.saturating_add(largest) > link.bytes)
        };
        // Files have the room that they have.
        let is_there = |tier: &Tier| *tier == Tier::Host || self.0.tiers.spill().is_some();
        let tiers = Tier::ALL.into_iter().filter(is_there);
        tiers.filter(is_full).collect()
    }
}

/// A value of a problem, for people: a cell by its name, another by its shape and what makes it.
fn name(graph: &Graph, compiled: &Compiled, value: highwater_plan::ValueId) -> String {
    if let Some(cell) = compiled.cell(value) {
        return cells::name(graph, cell);
    }
    let Some(value) = compiled.value(value) else {
        return String::new();
    };
    let value = graph.value(value);
    let made = value
        .producer
        .map(|(node, _)| describe(compiled.node(graph, node)));
    let made = made.unwrap_or_else(|| "an input".into());
    format!("{} made by {made}", value.spec)
}
