//! What the machine does in a second, for the planner's clock.

use highwater_graph::Cost;
use serde::{Deserialize, Serialize};

/// Rates of a machine with the threads that the engine has. They decide what is predicted and which
/// of several plans is taken, never a number that is computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Floating-point operations a second in matrix products.
    pub matmul_flops: f64,
    /// Floating-point operations a second elsewhere.
    pub vector_flops: f64,
    /// Bytes a second read and written together by one pass over memory.
    pub memory_bytes: f64,
    /// Seconds that starting a kernel takes.
    pub launch_seconds: f64,
}

impl Default for Rates {
    /// A server's two cores with AVX-512.
    fn default() -> Self {
        Self {
            matmul_flops: 3.9e11,
            vector_flops: 4.0e10,
            memory_bytes: 1.5e10,
            launch_seconds: 3e-6,
        }
    }
}

impl Rates {
    /// Predicted seconds of one run: matrix products at their rate, the rest at whichever of
    /// arithmetic and memory is slower.
    pub fn seconds(&self, cost: &Cost) -> f64 {
        let bytes = (cost.read_bytes + cost.written_bytes) as f64;
        let vector = cost.vector_flops / self.vector_flops;
        let pass = (bytes / self.memory_bytes).max(vector);
        let products = cost.matmul_flops / self.matmul_flops;
        // A product reads and writes its operands while it computes.
        let work = if products > 0.0 {
            products.max(pass)
        } else {
            pass
        };
        self.launch_seconds + work
    }
}
