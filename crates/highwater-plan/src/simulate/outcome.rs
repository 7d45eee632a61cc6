//! What a simulation is told to count, and what it answers.

use crate::problem::{NodeId, Tier, ValueId};
use crate::program::Program;

/// What moving a byte counts for, in seconds, by [`Tier`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Price {
    pub(crate) read: [f64; 2],
    pub(crate) write: [f64; 2],
}

/// Is told what happens, in order.
pub(crate) trait Recorder {
    fn run(&mut self, _node: NodeId, _fresh: &[Fresh]) {}
    fn free(&mut self, _value: ValueId) {}
    fn fetch(&mut self, _value: ValueId, _tier: Tier) {}
    fn evict(&mut self, _value: ValueId, _tier: Tier) {}
    fn restart(&mut self) {}
    /// Whether it is to be told at all.
    fn is_told(&self) -> bool {
        true
    }
}

impl Recorder for () {
    fn is_told(&self) -> bool {
        false
    }
}

/// An output that a run must place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fresh {
    pub(crate) value: ValueId,
    /// The input whose buffer it takes over.
    pub(crate) takes: Option<ValueId>,
}

/// What a simulation found.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Runs of nodes.
    pub(crate) runs: u32,
    pub(crate) peak: u64,
    /// The first run, counted from 0, that reaches the peak; `u32::MAX` if the start does.
    pub(crate) peak_run: u32,
    /// Of runs, and what transfers count for.
    pub(crate) seconds: f64,
    /// Of runs.
    pub(crate) compute: f64,
    /// Bytes fetched and evicted, by [`Tier`].
    pub(crate) read: [u64; 2],
    pub(crate) written: [u64; 2],
}

impl Outcome {
    pub(crate) fn new(bytes: u64) -> Outcome {
        Outcome {
            runs: 0,
            peak: bytes,
            peak_run: u32::MAX,
            seconds: 0.0,
            compute: 0.0,
            read: [0; 2],
            written: [0; 2],
        }
    }

    /// Whether every node that has to run does so once, none runs besides, and nothing is moved: no plan
    /// takes less time.
    pub(crate) fn is_least(&self, program: &Program) -> bool {
        // The last step stands for the end.
        let needed = program.steps.len() - 1 + program.updates.len();
        let moved = self
            .read
            .iter()
            .chain(&self.written)
            .any(|&bytes| bytes > 0);
        self.runs as usize == needed && !moved
    }
}

/// Settings and what they come to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) settings: Vec<u8>,
    /// Where updates stand.
    pub(crate) due: Vec<u32>,
    pub(crate) outcome: Outcome,
}

/// Why settings cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// A value is missing and cannot be made again; had the gap with this flat index been kept, it
    /// would not have been asked for.
    Gap(usize),
    /// A value is missing, whatever the settings.
    Lost(ValueId),
    /// Too many instructions.
    Long,
    /// More bytes than were allowed.
    Over,
}

/// Whether seconds are fewer than others, by more than rounding.
pub(crate) fn faster(seconds: f64, than: f64) -> bool {
    seconds < than * (1.0 - 1e-12)
}
