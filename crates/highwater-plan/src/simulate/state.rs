//! What values and runs are in the middle of a walk.

use crate::problem::{NodeId, Tier, ValueId};

/// A value held at a watched moment, and its gap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) value: ValueId,
    pub(crate) k: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) node: NodeId,
    pub(super) next: u32,
    /// The value that it is run for, if it is a recomputation.
    pub(super) target: Option<ValueId>,
}

/// What a value is in the middle of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// Flat index of its current gap.
    pub(super) gap: u32,
    /// Runs under way that use it.
    pub(super) pins: u32,
    /// Updates that have yet to read it.
    pub(super) pending: u32,
    /// Recomputations in its current gap.
    pub(super) count: u8,
    /// Recomputations that have read it since it was last made, or since its gap began.
    pub(super) read: u8,
    pub(super) present: bool,
    pub(super) hold: bool,
    /// Whether its setting is one that moves it.
    pub(super) spill: bool,
    /// Where there is a copy of it.
    pub(super) copy: Option<Tier>,
}

impl State {
    /// Whether nothing keeps it.
    pub(super) fn idle(self) -> bool {
        let pending = self.pending > 0 && !self.spill;
        self.present && !self.hold && self.pins == 0 && !pending
    }
}
