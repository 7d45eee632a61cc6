//! Step 7: the figures that a plan states.

use super::Violation;
use crate::plan::{Action, Lane, Plan};
use crate::problem::{Home, NodeId, Problem};

/// Seconds of a run: the node's, less those of the outputs that it leaves out.
fn cost(problem: &Problem, node: NodeId, outputs: &[Option<u64>]) -> f64 {
    let n = &problem.nodes[node as usize];
    let mut seconds = n.seconds;
    for &(o, saved) in &n.optional {
        let value = n
            .outputs
            .get(o as usize)
            .map(|&v| &problem.values[v as usize]);
        let inside = value.is_some_and(|v| v.home != Home::External);
        if inside && outputs.get(o as usize) == Some(&None) {
            seconds -= saved;
        }
    }
    seconds
}

pub(super) fn check(problem: &Problem, plan: &Plan, live: &[u64]) -> Result<(), Violation> {
    let most = live.iter().copied().max().unwrap_or(0);
    if plan.live_bytes != most {
        return Err(Violation::WrongLiveBytes {
            stated: plan.live_bytes,
            found: most,
        });
    }
    if live.get(plan.peak_instruction as usize) != Some(&most) {
        let found = live.iter().position(|&bytes| bytes == most).unwrap_or(0) as u32;
        return Err(Violation::WrongPeak {
            stated: plan.peak_instruction,
            found,
        });
    }
    let mut ran: Vec<bool> = problem.nodes.iter().map(|n| n.done).collect();
    let (mut seconds, mut again, mut count) = (0.0, 0.0, 0);
    let mut copies = false;
    for instruction in &plan.instructions {
        copies |= instruction.lane != Lane::Compute;
        let (node, outputs) = match &instruction.action {
            Action::Run { node, outputs, .. } => (*node, outputs.as_slice()),
            Action::Guard { node } => (*node, [].as_slice()),
            _ => continue,
        };
        let cost = cost(problem, node, outputs);
        seconds += cost;
        if std::mem::replace(&mut ran[node as usize], true) {
            again += cost;
            count += 1;
        }
    }
    if plan.recomputed_nodes != count {
        let stated = plan.recomputed_nodes;
        return Err(Violation::WrongRepetitions {
            stated,
            found: count,
        });
    }
    let differs = |stated: f64, found: f64| {
        let close = (stated - found).abs() <= 1e-9 * found + 1e-15;
        !close
    };
    if differs(plan.recompute_seconds, again) {
        return Err(Violation::WrongSeconds {
            stated: plan.recompute_seconds,
            found: again,
        });
    }
    let longer = copies && plan.seconds > seconds;
    if !longer && differs(plan.seconds, seconds) {
        return Err(Violation::WrongSeconds {
            stated: plan.seconds,
            found: seconds,
        });
    }
    Ok(())
}
