//! The choice among plans that move values: by their schedules.

use crate::abreast::abreast;
use crate::emit::{Carried, Schedule};
use crate::explain::Floor;
use crate::family::curve::Curve;
use crate::pack::Effort;
use crate::plan::Plan;
use crate::problem::Problem;
use crate::program::Program;
use crate::simulate::{Candidate, Simulator};

/// What is left of a budget for fetching ahead, as shares of what is above the least peak.
const SPARE: [f64; 6] = [0.0, 0.1, 0.2, 0.35, 0.5, 0.7];
/// What packing is expected to lose, as a share of a budget, where transfers fill all of it.
const PACKED: f64 = 0.99;
/// How many schedules are packed at most, and how often each with less to fill.
const PACKINGS: usize = 6;
const TRIES: usize = 3;
/// What a plan may take more seconds than another, as a share, to move less.
const NEAR: f64 = 0.01;

/// The fastest plan with transfers, by its schedule: each price and each share of the budget left for
/// fetching ahead offers one.
pub(crate) fn choose(
    problem: &Problem,
    program: &Program,
    (curve, floor): (&Curve, &Floor),
    budget: u64,
) -> Option<Plan> {
    let mut offers = offers(problem, program, (curve, floor.arena_bytes), budget);
    offers.sort_by(|a, b| a.0.seconds.total_cmp(&b.0.seconds));
    offers.truncate(PACKINGS);
    let packed = abreast(program.nodes(), offers, |(schedule, carried)| {
        packed((problem, program), &carried, schedule, budget)
    });
    let mut plans: Vec<Plan> = packed.into_iter().flatten().collect();
    if plans.is_empty() {
        let least = curve.least(problem, program, Effort::Thorough);
        return least.filter(|plan| plan.memory_bytes() <= budget);
    }
    // Of those that are about as fast, the one that moves least.
    let seconds = plans.iter().map(|plan| plan.seconds);
    let fastest = seconds.fold(f64::INFINITY, f64::min);
    plans.retain(|plan| plan.seconds <= fastest * (1.0 + NEAR));
    plans.into_iter().min_by_key(Plan::moved_bytes)
}

/// What each price and each share of the budget finds, scheduled side by side.
fn offers(
    problem: &Problem,
    program: &Program,
    (curve, floor): (&Curve, u64),
    budget: u64,
) -> Vec<(Schedule, Carried)> {
    let mut tried: Vec<&Candidate> = Vec::new();
    for list in curve.lists() {
        for spare in SPARE {
            let left = (budget.saturating_sub(floor) as f64 * (1.0 - spare)) as u64;
            let left = left.saturating_add(floor);
            let fits = |found: &&Candidate| found.outcome.peak <= left.min(budget);
            let found = list.iter().find(fits).or(list.last());
            if let Some(found) = found.filter(|found| found.outcome.peak <= budget)
                && tried.iter().all(|known| known.settings != found.settings)
            {
                tried.push(found);
            }
        }
    }
    let offers = abreast(program.nodes(), tried, |found| {
        let carried = Carried::new(problem, program, &mut Simulator::new(program), found).ok()?;
        let arena = budget.saturating_sub(carried.home_bytes);
        let schedule = carried.scheduled(problem, (arena as f64 * PACKED) as u64);
        Some((schedule, carried))
    });
    offers.into_iter().flatten().collect()
}

/// A schedule packed within a budget; where packing loses too much, one that fills less.
fn packed(
    (problem, program): (&Problem, &Program),
    carried: &Carried,
    mut schedule: Schedule,
    budget: u64,
) -> Option<Plan> {
    let room = budget.saturating_sub(carried.home_bytes);
    let mut filled = (room as f64 * PACKED) as u64;
    for _ in 0..TRIES {
        let plan = carried.plan(problem, program, &schedule, Effort::Thorough);
        let over = plan.arena_bytes.saturating_sub(room);
        if over == 0 {
            return Some(plan);
        }
        filled = filled.saturating_sub(over + over / 4);
        schedule = carried.scheduled(problem, filled);
    }
    None
}
