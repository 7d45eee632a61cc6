//! Order between runs of different lanes, where no bytes of the arena show it: of values outside it, of
//! cells and of guards.

use super::clock::{Clocks, LANES};

/// The latest instruction of each lane that did something: those before it in its lane come before it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Latest([Option<u32>; LANES]);

impl Latest {
    pub(super) fn note(&mut self, i: u32, clocks: &Clocks) {
        self.0[clocks.lane(i)] = Some(i);
    }

    /// One that may not have completed when an instruction starts.
    pub(super) fn unordered(&self, i: u32, clocks: &Clocks) -> Option<u32> {
        let mut others = self.0.iter().flatten().copied();
        others.find(|&other| other != i && !clocks.before(other, i))
    }
}

/// Who wrote something last, and who read it since.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Uses {
    wrote: Latest,
    read: Latest,
}

impl Uses {
    /// Notes a read. The error is a write that it may meet.
    pub(super) fn read(&mut self, i: u32, clocks: &Clocks) -> Result<(), u32> {
        self.read.note(i, clocks);
        self.wrote.unordered(i, clocks).map_or(Ok(()), Err)
    }

    /// Notes a write. The error is a use that it may meet.
    pub(super) fn write(&mut self, i: u32, clocks: &Clocks) -> Result<(), u32> {
        let before = [self.wrote, self.read];
        *self = Uses::default();
        self.wrote.note(i, clocks);
        let mut met = before.iter().filter_map(|uses| uses.unordered(i, clocks));
        met.next().map_or(Ok(()), Err)
    }
}
