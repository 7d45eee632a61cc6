//! What is said about a plan when it is made.

use super::decisions::{self, Decision};
use super::held::{Beside, Held, Moment, held};
use super::price::Price;
use crate::error::describe;
use crate::problem::compile::Compiled;
use crate::store::limits::Stated;
use crate::store::memory::Memory;
use highwater_graph::{Graph, Phase};
use highwater_plan::{Families, Home, NodeId, Plan, Problem, ValueId, holders, running};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// What a plan is of, and what is beside it.
pub(crate) struct Around<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) compiled: &'a Compiled,
    pub(crate) memory: &'a Memory,
    /// What state takes without the cells that the plan decides about.
    pub(crate) state_bytes: u64,
    pub(crate) stated: Stated,
}

/// What is said about a plan when it is made; kept as long as the plan.
#[derive(Debug)]
pub(crate) struct Told {
    problem: Arc<Problem>,
    /// Prices of the plans of its family, in bytes of the arena and of the cells that they decided
    /// about, once they were asked for.
    prices: OnceLock<Vec<Price>>,
    pub(super) floor: Point,
    pub(super) peak: Point,
    pub(super) saved_bytes: u64,
    pub(super) decisions: Vec<Decision>,
}

/// A moment of a plan.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) arena_bytes: u64,
    pub(super) at: String,
    pub(super) held: Held,
}

impl Told {
    /// All there is to say about a new plan and its family. `floor_bytes` is the least budget that the
    /// family's least plan needs.
    pub(crate) fn new(
        around: &Around<'_>,
        family: &Families,
        plan: &Plan,
        floor_bytes: u64,
    ) -> Self {
        let (graph, compiled) = (around.graph, around.compiled);
        let floor = family.floor();
        let at_peak = holders(&compiled.problem, plan, plan.peak_instruction as usize);
        let node = running(plan, plan.peak_instruction);
        Self {
            problem: Arc::clone(&compiled.problem),
            prices: OnceLock::new(),
            floor: around.point(
                (floor_bytes, 0),
                floor.node,
                &floor.holders,
                floor.scratch_bytes,
            ),
            peak: around.point(
                (plan.arena_bytes, plan.home_bytes),
                node,
                &at_peak.values,
                at_peak.scratch_bytes,
            ),
            saved_bytes: saved_bytes(graph, compiled),
            decisions: decisions::decisions(graph, compiled, plan),
        }
    }

    /// Has `prices` say what the problem costs, once.
    pub(super) fn ask_prices(&self, mut prices: impl FnMut(&Arc<Problem>) -> Vec<Price>) {
        self.prices.get_or_init(|| prices(&self.problem));
    }

    pub(super) fn prices(&self) -> &[Price] {
        self.prices.get().map_or(&[], Vec::as_slice)
    }
}

impl Around<'_> {
    fn point(
        &self,
        (arena_bytes, home_bytes): (u64, u64),
        node: Option<NodeId>,
        values: &[(ValueId, u64)],
        scratch_bytes: u64,
    ) -> Point {
        let node = node.and_then(|node| self.compiled.nodes.get(node as usize).copied());
        let moment = Moment {
            arena_bytes,
            home_bytes,
            node,
            values,
            scratch_bytes,
        };
        let tensors = arena_bytes + home_bytes + self.state_bytes;
        let beside = Beside {
            state: self.state_bytes,
            reserve: self.stated.process(tensors),
            host: self.stated.host,
        };
        let at = node.map(|node| describe(self.graph.node(node)));
        Point {
            arena_bytes,
            at: at.unwrap_or_default(),
            held: held(self.memory, self.graph, self.compiled, &moment, &beside),
        }
    }
}

/// Bytes of values in the arena that the forward part makes and the backward part reads.
fn saved_bytes(graph: &Graph, compiled: &Compiled) -> u64 {
    let phase = |&id: &highwater_graph::NodeId| graph.node(id).site.phase;
    let mut saved = BTreeSet::new();
    for (id, posed) in compiled.nodes.iter().zip(&compiled.problem.nodes) {
        if phase(id) != Phase::Forward {
            saved.extend(posed.inputs.iter().copied());
        }
    }
    let made = compiled.nodes.iter().zip(&compiled.problem.nodes);
    let made = made.filter(|(id, _)| phase(id) == Phase::Forward);
    // What may be left out is made ahead, for the backward part.
    let values = made.flat_map(|(_, posed)| {
        let outputs = posed.outputs.iter().enumerate();
        outputs.filter_map(|(o, value)| posed.saved(o).is_none().then_some(value))
    });
    values
        .filter(|&value| saved.contains(value))
        .map(|&value| &compiled.problem.values[value as usize])
        .filter(|value| value.home != Home::External)
        .map(|value| value.bytes)
        .sum()
}
