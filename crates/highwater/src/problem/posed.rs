//! What a problem is made from.

use crate::pending::Progress;
use crate::problem::clock::Clock;
use highwater_graph::{CellId, Graph, ValueId};
use highwater_ops::Kernels;
use highwater_plan::{self as plan, Home};
use std::collections::BTreeSet;

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
