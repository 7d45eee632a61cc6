//! Every plan found for a problem, and the choice among them.

use crate::check::{ProblemError, check};
use crate::emit::emit;
use crate::holders::holders;
use crate::plan::{Action, Plan};
use crate::problem::{NodeId, Problem, ValueId};
use crate::program::Program;
use crate::search::{Found, Search};
use crate::settings::Limits;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How many budgets the search tries to do well at.
const RUNGS: u32 = 28;
/// Each rung is this much of the way from the one above down to the least that could work.
const RATIO: f64 = 0.88;

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
    fn of(problem: &Problem, plan: &Plan) -> Floor {
        let peak = plan.peak_instruction as usize;
        let held = holders(problem, plan, peak);
        let node = plan.instructions.get(peak).and_then(|i| match i.action {
            Action::Run { node, .. } | Action::Guard { node } => Some(node),
            _ => None,
        });
        Floor {
            arena_bytes: plan.arena_bytes,
            node,
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

/// Every plan found for a problem under a policy: a curve of seconds over bytes. It doesn't depend
/// on any budget, so seconds never rise with the budget and the floor is one number.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    plans: Vec<Plan>,
    floor: Floor,
}

impl Family {
    /// Plans a problem.
    ///
    /// # Errors
    /// If the problem makes no sense.
    pub fn build(problem: &Problem, policy: Policy) -> Result<Family, ProblemError> {
        check(problem)?;
        let program = Program::new(problem)?;
        let limits = Limits::new(problem, &program, policy);
        let lost = |value| ProblemError::Lost { value };
        let mut search = Search::new(&program, limits).map_err(lost)?;
        let top = search
            .archive
            .all()
            .last()
            .map_or(0, |found| found.outcome.peak);
        let least = least(&program);
        let rungs = rungs(top, least);
        if policy != Policy::Keep {
            search.explore(&rungs);
        }
        let chosen = select(&search, &rungs);
        let emit =
            |found: &Found| emit(problem, &program, &mut search.simulator, &found.settings).ok();
        let plans = pareto(chosen.iter().filter_map(emit).collect());
        let floor = plans
            .last()
            .map_or_else(Floor::default, |plan| Floor::of(problem, plan));
        Ok(Family { plans, floor })
    }

    /// The fastest plan whose arena fits; of equally fast ones that with the least arena.
    ///
    /// # Errors
    /// If no plan fits.
    pub fn choose(&self, budget_bytes: u64) -> Result<&Plan, Refusal> {
        let fits = self.plans.iter().find(|p| p.arena_bytes <= budget_bytes);
        fits.ok_or_else(|| Refusal {
            budget_bytes,
            floor: self.floor.clone(),
        })
    }

    /// The least that would do, and what sets it.
    pub fn floor(&self) -> &Floor {
        &self.floor
    }

    /// The plans, fastest first; each slower one has a smaller arena.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }
}

/// Bytes below which no plan can be: the largest single run.
fn least(program: &Program) -> u64 {
    let bytes = |n: NodeId| {
        let values = program.inputs.row(n);
        let sum: u64 = values.iter().map(|&v| program.size[v as usize]).sum();
        sum + program.scratch.get(n as usize).copied().unwrap_or(0)
    };
    program.steps.iter().map(|&n| bytes(n)).max().unwrap_or(0)
}

/// Budgets from just below `top` down to `least`, closer and closer.
fn rungs(top: u64, least: u64) -> Vec<u64> {
    let span = top.saturating_sub(least) as f64;
    let rung = |i| least + (span * RATIO.powi(i)) as u64;
    let mut rungs: Vec<u64> = (1..=RUNGS as i32).map(rung).collect();
    rungs.push(least);
    rungs.dedup();
    rungs
}

/// What is worth packing: the best for each rung, the fastest and the few smallest.
fn select(search: &Search, rungs: &[u64]) -> Vec<Found> {
    let archive = &search.archive;
    let rungs = rungs.iter().filter_map(|&rung| archive.within(rung));
    let ends = archive.all().take(4).chain(archive.all().last());
    let mut chosen: Vec<Found> = rungs.chain(ends).cloned().collect();
    chosen.sort_by_key(|found| found.outcome.peak);
    chosen.dedup_by_key(|found| found.outcome.peak);
    chosen
}

/// Drops plans that are no faster than one with as small an arena; fastest first.
fn pareto(mut plans: Vec<Plan>) -> Vec<Plan> {
    plans.sort_by(|a, b| {
        a.seconds
            .total_cmp(&b.seconds)
            .then(a.arena_bytes.cmp(&b.arena_bytes))
    });
    let mut least = u64::MAX;
    plans.retain(|p| {
        let smaller = p.arena_bytes < least;
        least = least.min(p.arena_bytes);
        smaller
    });
    plans
}
