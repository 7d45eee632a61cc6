//! What the planner may decide.

use serde::{Deserialize, Serialize};

/// What the planner may decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// Whatever is fastest within the budget.
    #[default]
    Auto,
    /// Recompute nothing but what is pinned so.
    Keep,
    /// Recompute at least everything between cut values, as checkpointing per block does.
    Recompute,
}
