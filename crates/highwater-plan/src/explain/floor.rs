//! The least that a problem needs, and what is said to who has less.

use crate::explain::holders::{holders, running};
use crate::plan::Plan;
use crate::problem::{NodeId, Problem, ValueId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What is held at the worst moment of the smallest plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// Least `arena_bytes` found.
    pub arena_bytes: u64,
    /// The node that runs at that moment, if any.
    pub node: Option<NodeId>,
    /// The values held then, with the bytes that they take, largest first.
    pub holders: Vec<(ValueId, u64)>,
    /// Bytes of the node's scratch memory.
    pub scratch_bytes: u64,
}

impl Floor {
    pub(crate) fn of(problem: &Problem, plan: &Plan) -> Floor {
        let peak = plan.peak_instruction as usize;
        let held = holders(problem, plan, peak);
        Floor {
            arena_bytes: plan.memory_bytes(),
            node: running(plan, plan.peak_instruction),
            holders: held.values,
            scratch_bytes: held.scratch_bytes,
        }
    }
}

/// No plan fits the budget.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", refusal(*budget_bytes, floor))]
pub struct Refusal {
    /// What was asked for.
    pub budget_bytes: u64,
    /// The least that would do.
    pub floor: Floor,
}

fn refusal(budget: u64, floor: &Floor) -> String {
    let node = floor
        .node
        .map_or(String::new(), |n| format!(" (set by node {n})"));
    let holder = match floor.holders.first() {
        Some((v, bytes)) if *bytes >= floor.scratch_bytes => {
            format!("; the largest holder is value {v} with {bytes} bytes")
        }
        _ if floor.scratch_bytes > 0 => {
            format!(
                "; the largest holder is its scratch with {} bytes",
                floor.scratch_bytes
            )
        }
        _ => String::new(),
    };
    format!(
        "need at least {} bytes{node}, have {budget}{holder}",
        floor.arena_bytes
    )
}
