//! What evaluations planned, and what they took.

pub(crate) mod decisions;
pub(crate) mod forecast;
pub(crate) mod held;
mod names;

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

/// What plans moved to and from a tier, and what that took. Bytes; measured seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Io {
    /// Payload read.
    pub bytes_read: u64,
    /// Payload written.
    pub bytes_written: u64,
    /// Seconds in which kernels waited for its transfers.
    pub wait_seconds: f64,
    /// Seconds that reads took, one after the other.
    pub read_seconds: f64,
    /// Seconds that writes took, one after the other.
    pub write_seconds: f64,
}

impl Io {
    /// The share of the transfers' time that is hidden behind kernels and behind each other, from 0 to
    /// 1; 1 where nothing was moved.
    #[must_use]
    pub fn overlap(&self) -> f64 {
        let busy = self.read_seconds + self.write_seconds;
        if busy > 0.0 {
            (1.0 - self.wait_seconds / busy).clamp(0.0, 1.0)
        } else {
            1.0
        }
    }
}

impl std::ops::AddAssign for Io {
    fn add_assign(&mut self, other: Self) {
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.wait_seconds += other.wait_seconds;
        self.read_seconds += other.read_seconds;
        self.write_seconds += other.write_seconds;
    }
}

impl std::ops::Sub for Io {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
            wait_seconds: self.wait_seconds - before.wait_seconds,
            read_seconds: self.read_seconds - before.read_seconds,
            write_seconds: self.write_seconds - before.write_seconds,
        }
    }
}
