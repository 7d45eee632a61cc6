//! What operations took since an engine was built, and what they did in that time.

use highwater_graph::{Cost, DType};
use std::collections::BTreeMap;

/// What all runs of an operation on tensors of a dtype did, and took.
///
/// Counted are the evaluations whose plan had run before: the first run of a plan touches its pages for the
/// first time. Runs that computed a value again count like others.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationProfile {
    /// The operation's name, as [`op::Op::name`](crate::op::Op::name).
    pub op: &'static str,
    /// The dtype of its first input, or of its first output where it has no input.
    pub dtype: DType,
    /// How often it ran.
    pub runs: u64,
    /// Seconds that its kernels took, by the clock on the wall.
    pub seconds: f64,
    /// Floating-point operations as declared; transcendental functions count about ten.
    pub flops: f64,
    /// Bytes of inputs read and outputs written, as declared: what caches spare is not known.
    pub bytes: f64,
}

/// Sums for each operation and dtype.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    rows: BTreeMap<(&'static str, DType), OperationProfile>,
}

impl Profile {
    /// Adds so many runs of one cost, which took so many seconds together.
    pub(crate) fn add(
        &mut self,
        (op, dtype): (&'static str, DType),
        cost: &Cost,
        (runs, seconds): (u64, f64),
    ) {
        let row = self.rows.entry((op, dtype)).or_insert(OperationProfile {
            op,
            dtype,
            runs: 0,
            seconds: 0.0,
            flops: 0.0,
            bytes: 0.0,
        });
        row.runs += runs;
        row.seconds += seconds;
        row.flops += runs as f64 * (cost.matmul_flops + cost.vector_flops);
        row.bytes += runs as f64 * (cost.read_bytes + cost.written_bytes) as f64;
    }

    /// All rows, those that took longest first.
    pub(crate) fn rows(&self) -> Vec<OperationProfile> {
        let mut rows: Vec<_> = self.rows.values().cloned().collect();
        rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        rows
    }
}
