//! What plans cost.

use crate::problem::compiled::Compiled;
use crate::problem::ran::Ran;
use highwater_plan::{Action, Families, Plan, Problem};
use serde::{Deserialize, Serialize};

/// What a step costs from some budget on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Bytes of the process.
    pub bytes: u64,
    /// Predicted seconds of a step.
    pub seconds_per_step: f64,
    /// Nodes that run again.
    pub recomputed_nodes: u32,
    /// Predicted seconds of those.
    pub recompute_seconds: f64,
    /// Bytes that a step reads from disk.
    #[serde(default)]
    pub bytes_read: u64,
    /// Bytes that a step writes to disk.
    #[serde(default)]
    pub bytes_written: u64,
    /// Bytes that a step copies from host memory, where that is apart.
    #[serde(default)]
    pub host_bytes_read: u64,
    /// Bytes that a step copies to host memory.
    #[serde(default)]
    pub host_bytes_written: u64,
}

/// The family of a problem as a list of so many prices: the one place that looks at more than one of
/// its plans.
pub(super) fn prices(problem: &Problem, families: &Families, count: usize) -> Vec<Price> {
    if count == 0 {
        return Vec::new();
    }
    families.plans(problem, count).iter().map(price).collect()
}

/// What all of a plan costs.
pub(super) fn price(plan: &Plan) -> Price {
    Price {
        bytes: plan.memory_bytes(),
        seconds_per_step: plan.seconds,
        recomputed_nodes: plan.recomputed_nodes,
        recompute_seconds: plan.recompute_seconds,
        bytes_read: plan.disk.read_bytes,
        bytes_written: plan.disk.written_bytes,
        host_bytes_read: plan.host.read_bytes,
        host_bytes_written: plan.host.written_bytes,
    }
}

/// What the runs that a plan came to cost.
pub(super) fn price_of_runs(plan: &Plan, compiled: &Compiled, ran: &Ran) -> Price {
    let runs = |action: &Action| matches!(action, Action::Run { .. } | Action::Guard { .. });
    let all = plan.instructions.iter().filter(|i| runs(&i.action)).count();
    // A plan that another takes over moves about as much of its bytes as it runs of its nodes.
    let part = |bytes: u64| bytes * ran.nodes.len() as u64 / all.max(1) as u64;
    let mut price = Price {
        bytes: plan.memory_bytes(),
        seconds_per_step: 0.0,
        recomputed_nodes: 0,
        recompute_seconds: 0.0,
        bytes_read: part(plan.disk.read_bytes),
        bytes_written: part(plan.disk.written_bytes),
        host_bytes_read: part(plan.host.read_bytes),
        host_bytes_written: part(plan.host.written_bytes),
    };
    let nodes = &compiled.problem.nodes;
    let mut seen: Vec<bool> = nodes.iter().map(|node| node.done).collect();
    for (&node, &left_out) in ran.nodes.iter().zip(&ran.left_out) {
        let seconds = nodes[node.index()].seconds_without(|o| left_out >> o & 1 == 1);
        price.seconds_per_step += seconds;
        if std::mem::replace(&mut seen[node.index()], true) {
            price.recomputed_nodes += 1;
            price.recompute_seconds += seconds;
        }
    }
    price.seconds_per_step += ran.predicted_wait(compiled, plan);
    price
}
