//! What became of a plan: how far it was to run, and what ran.

use crate::problem::compile::Compiled;
use crate::problem::offsets::Offsets;
use crate::store::io::Io;
use highwater_plan::Action;
use std::collections::BTreeSet;

/// How far a plan is to run: until all of these were produced or run. Numbers of the problem.
#[derive(Debug)]
pub(crate) struct Until {
    pub(crate) values: BTreeSet<highwater_plan::ValueId>,
    pub(crate) nodes: BTreeSet<highwater_plan::NodeId>,
}

impl Until {
    pub(crate) fn is_reached(&self) -> bool {
        self.values.is_empty() && self.nodes.is_empty()
    }

    pub(crate) fn note(&mut self, compiled: &Compiled, action: &Action) {
        if let Action::Run { node, .. } | Action::Guard { node } = action {
            self.nodes.remove(node);
            for output in &compiled.problem.nodes[*node as usize].outputs {
                self.values.remove(output);
            }
        }
    }
}

/// What happened when a plan ran.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) offsets: Offsets,
    /// The problem's nodes that ran, in order.
    pub(crate) nodes: Vec<highwater_plan::NodeId>,
    /// The outputs that each left out, a bit for each.
    pub(crate) left_out: Vec<u32>,
    /// Seconds from the end of the node before to the end of each of those, so that they add up.
    pub(crate) seconds: Vec<f64>,
    /// One past the highest byte of the arena that was handed to a kernel.
    pub(crate) peak_arena_bytes: u64,
    /// Seconds spent running nodes again.
    pub(crate) recompute_seconds: f64,
    /// What was moved to and from disk.
    pub(crate) io: Io,
    /// What was moved to and from host memory.
    pub(crate) host_io: Io,
}

impl Ran {
    /// The problem's values that are in the arena now, with their offsets.
    pub(crate) fn present(&self) -> impl Iterator<Item = (highwater_plan::ValueId, u64)> {
        let values = (0..).zip(self.offsets.all());
        values.filter_map(|(value, offset)| Some((value, (*offset)?)))
    }
}
