//! What a graph asks about the kernels there are.

use crate::{KernelId, Op, OpError, Spec};
use std::fmt::Debug;

/// What runs nodes, as far as their making depends on it: the registry of kernels. It answers when
/// a node is made, so that nothing waits in a graph that nobody can compute.
pub trait Backend: Debug + Send + Sync {
    /// The kernel that takes the operation with these inputs and outputs.
    ///
    /// # Errors
    /// [`OpError::NoKernel`].
    fn find(&self, op: &dyn Op, inputs: &[Spec], outputs: &[Spec]) -> Result<KernelId, OpError>;

    /// Whether a kernel takes an input, at position `read`, that sees elements of the cell which the
    /// node overwrites at position `written`.
    fn may_overlap(&self, kernel: KernelId, read: usize, written: usize) -> bool;
}
