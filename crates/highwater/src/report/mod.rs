//! What evaluations planned, and what they took.

pub(crate) mod decisions;
pub(crate) mod forecast;
pub(crate) mod held;
mod names;
pub(crate) mod price;
mod scene;
pub(crate) mod steps;
pub(crate) mod told;

use crate::report::steps::Steps;
use crate::store::io::Io;

/// What the last evaluation planned and what it took. Bytes; seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepReport {
    /// Height of the plan's arena.
    pub planned_arena_bytes: u64,
    /// One past the highest byte of it that was used.
    pub peak_arena_bytes: u64,
    /// Persistent state: parameters, moments, inputs, kept values.
    pub state_bytes: u64,
    /// Code, heap, stacks and libraries' buffers: what the process is allowed beside its arenas.
    pub reserve_bytes: u64,
    /// What is taken of host memory, where that is apart.
    pub host_bytes: u64,
    /// State, plan, host memory and reserve together.
    pub planned_process_bytes: u64,
    /// Predicted seconds of the nodes that ran.
    pub predicted_seconds: f64,
    /// Measured seconds, planning included where there was some.
    pub seconds: f64,
    /// Measured seconds of posing the problem whose plan ran.
    pub compile_seconds: f64,
    /// Measured seconds of finding or making the plan: of posing problems too.
    pub choose_seconds: f64,
    /// Measured seconds of the nodes alone.
    pub node_seconds: f64,
    /// Nodes that ran again.
    pub recomputed_nodes: u32,
    /// Measured seconds of those.
    pub recompute_seconds: f64,
    /// Nodes that ran, repetitions included.
    pub nodes: u32,
    /// Which guarded value was not finite, if the updates were left out because of it.
    pub skipped: Option<&'static str>,
    /// What was moved to and from disk.
    pub io: Io,
    /// What was moved to and from host memory, where that is apart.
    pub host_io: Io,
}

/// Sums over all evaluations since an engine was built. A step of a training loop may evaluate more
/// than once (micro-batches, values that are read in the middle): what it took is the difference of
/// two of these.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// How many evaluations there were.
    pub evaluations: u64,
    /// Predicted seconds of the nodes that ran.
    pub predicted_seconds: f64,
    /// Measured seconds, planning included where there was some.
    pub seconds: f64,
    /// What plans moved to and from disk.
    pub io: Io,
    /// What plans moved to and from host memory, where that is apart.
    pub host_io: Io,
}

/// What is told of evaluations.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) last: StepReport,
    pub(crate) totals: Totals,
    pub(crate) steps: Steps,
}

impl Record {
    /// Notes what an evaluation took.
    pub(crate) fn note(&mut self, report: StepReport) {
        self.totals.evaluations += 1;
        self.totals.predicted_seconds += report.predicted_seconds;
        self.totals.seconds += report.seconds;
        self.totals.io += report.io;
        self.totals.host_io += report.host_io;
        self.last = report;
    }
}
