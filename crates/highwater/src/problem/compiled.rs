//! A problem with the way back: what its nodes and values are in the graph.

use crate::problem::clock::Work;
use crate::problem::fuse::FusedNodes;
use highwater_graph::{CellId, Graph, Node, NodeId, ValueId};
use highwater_plan::{self as plan, BLOCK, Home, Problem, Tier};
use std::sync::Arc;

/// The problem that part of a graph poses, with the way back.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) problem: Arc<Problem>,
    /// The graph's node for each of the problem's.
    pub(crate) nodes: Vec<NodeId>,
    /// What stands for several nodes of the graph, by the last of them.
    pub(super) fused: FusedNodes,
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

/// What runs of a node do that leave outputs out: a bit for each of those, and the work.
pub(crate) type Variants = Vec<(u32, Work)>;
