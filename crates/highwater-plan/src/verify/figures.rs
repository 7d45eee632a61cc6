//! Step 7: the figures that a plan states.

use super::Violation;
use super::form::taken;
use crate::plan::{Action, Plan, Traffic};
use crate::problem::{Home, Lane, NodeId, Problem, Tier, ValueId};

/// Seconds of a run: the node's, less those of the outputs that it leaves out.
fn cost(problem: &Problem, node: NodeId, outputs: &[Option<u64>]) -> f64 {
    let n = &problem.nodes[node.index()];
    let mut seconds = n.seconds;
    for &(o, saved) in &n.optional {
        let value = n
            .outputs
            .get(o as usize)
            .map(|&v| &problem.values[v.index()]);
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
        copies |= !matches!(instruction.lane, Lane::Compute | Lane::Communicate);
        let (node, outputs) = match &instruction.action {
            Action::Run { node, outputs, .. } => (*node, outputs.as_slice()),
            Action::Guard { node } => (*node, [].as_slice()),
            _ => continue,
        };
        let cost = cost(problem, node, outputs);
        seconds += cost;
        if std::mem::replace(&mut ran[node.index()], true) {
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
    let waited =
        plan.seconds > seconds && plan.seconds <= (seconds + transfers(problem, plan)) * 1.001;
    if !(copies && waited) && differs(plan.seconds, seconds) {
        return Err(Violation::WrongSeconds {
            stated: plan.seconds,
            found: seconds,
        });
    }
    tiers(problem, plan)
}

/// Seconds of all transfers, one after the other at the lower of their rates, and what runs lose by them.
fn transfers(problem: &Problem, plan: &Plan) -> f64 {
    let seconds = |tier: Tier| {
        let (link, traffic) = (problem.tiers.link(tier)?, plan.traffic(tier));
        let read = traffic.read_bytes as f64 / link.read.min(link.read_while_writing);
        let write = traffic.written_bytes as f64 / link.write.min(link.write_while_reading);
        let lost = (traffic.read_bytes + traffic.written_bytes) as f64 * link.lost;
        Some(read + write + lost)
    };
    Tier::ALL.into_iter().filter_map(seconds).sum()
}

/// Homes and traffic, as stated and within what there is room for.
fn tiers(problem: &Problem, plan: &Plan) -> Result<(), Violation> {
    let bytes = |value: ValueId| problem.values[value.index()].bytes;
    let mut memory = 0;
    for &(value, _) in plan.homes.iter().filter(|home| home.1.is_none()) {
        memory += taken(problem, bytes(value));
    }
    if memory != plan.home_bytes {
        let first = plan.homes.first();
        let value = first.map_or(ValueId::new(0), |home| home.0);
        return Err(Violation::WrongHome { value });
    }
    for tier in Tier::ALL {
        let mut found = Traffic {
            spill_bytes: plan.traffic(tier).spill_bytes,
            ..Traffic::default()
        };
        for &(value, _) in plan.homes.iter().filter(|home| home.1 == Some(tier)) {
            found.home_bytes += below(tier, bytes(value));
        }
        for instruction in &plan.instructions {
            match instruction.action {
                Action::Fetch { value, tier: t, .. } if t == tier => {
                    found.read_bytes += bytes(value);
                }
                Action::Evict { value, tier: t, .. } if t == tier => {
                    found.written_bytes += bytes(value);
                }
                _ => {}
            }
        }
        if found != *plan.traffic(tier) {
            return Err(Violation::WrongTraffic { tier });
        }
        let room = problem.tiers.link(tier).map_or(0, |link| link.bytes);
        let found = found.home_bytes + found.spill_bytes;
        if found > room {
            return Err(Violation::TierFull { tier, found, room });
        }
    }
    Ok(())
}

/// What a cell takes on a tier: on disk, whole blocks behind a header of one.
fn below(tier: Tier, bytes: u64) -> u64 {
    match tier {
        Tier::Host => (bytes + 63) & !63,
        Tier::Disk => 4096 + ((bytes + 4095) & !4095),
    }
}
