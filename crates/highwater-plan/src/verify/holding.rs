//! Step 4: a stretch of time in which a value has its bytes in the arena, and who uses it then.

use super::Violation;
use super::clock::Clocks;
use crate::problem::ValueId;

/// How a holding ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Close {
    /// Nothing ends it.
    Never,
    /// A free, or the completion of an evict.
    At(u32),
    /// A run whose output, this holding, takes the bytes over.
    TakenBy(u32, usize),
}

impl Close {
    pub(super) fn instruction(self) -> Option<u32> {
        match self {
            Close::Never => None,
            Close::At(i) | Close::TakenBy(i, _) => Some(i),
        }
    }
}

/// A value (or scratch, if it is none) in a range of the arena.
#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub(super) value: Option<ValueId>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) contents: u64,
    /// The instruction that opens it; `None` if it is there from the start.
    pub(super) open: Option<u32>,
    pub(super) close: Close,
    /// Instructions that read it or (`true`) rewrite it in place.
    pub(super) uses: Vec<(u32, bool)>,
}

impl Holding {
    pub(super) fn overlaps(&self, other: &Holding) -> bool {
        self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }

    /// Every use lies between opening and closing, and rewrites are alone.
    pub(super) fn check(&self, clocks: &Clocks) -> Result<(), Violation> {
        let Some(value) = self.value else {
            return Ok(());
        };
        for &(i, _) in &self.uses {
            if let Some(opened) = self.open.filter(|&o| !clocks.before(o, i)) {
                return Err(Violation::MissingWait {
                    instruction: i,
                    opened,
                    value,
                });
            }
            let close = self.close.instruction();
            if let Some(c) = close.filter(|&c| c != i && !clocks.before(i, c)) {
                return Err(Violation::StillRead {
                    instruction: c,
                    reader: i,
                    value,
                });
            }
        }
        if let (Some(opened), Some(c)) = (self.open, self.close.instruction())
            && !clocks.before(opened, c)
        {
            return Err(Violation::MissingWait {
                instruction: c,
                opened,
                value,
            });
        }
        // Within a lane all are ordered.
        let mut lanes = self.uses.iter().map(|u| clocks.lane(u.0));
        let first = lanes.next();
        if lanes.all(|lane| Some(lane) == first) {
            return Ok(());
        }
        for &(first, _) in self.uses.iter().filter(|u| u.1) {
            for &(second, _) in self.uses.iter().filter(|u| u.0 != first) {
                if !clocks.before(first, second) && !clocks.before(second, first) {
                    return Err(Violation::Race {
                        first,
                        second,
                        value,
                    });
                }
            }
        }
        Ok(())
    }
}
