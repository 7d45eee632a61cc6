//! What an evaluation is asked for.

use highwater_graph::{Operand, ValueId};
use std::collections::BTreeSet;

/// What an evaluation is to achieve.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    /// Values that get storage of their own.
    pub(crate) targets: &'a BTreeSet<ValueId>,
    /// Whether pending writes and guards run.
    pub(crate) effects: bool,
    /// Whether the plan runs to its end, or only as far as the targets and effects need.
    pub(crate) whole: bool,
    /// The value that backward will be called on next, if the graph stays pending for that.
    pub(crate) future: Option<&'a Operand>,
}

impl Request<'_> {
    /// Whether it is a training step, whose plan says where cells are from then on.
    pub(crate) fn trains(&self) -> bool {
        self.whole && self.effects
    }
}
