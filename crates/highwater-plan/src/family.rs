//! Every plan found for a problem, and the choice among them.

use crate::abreast::abreast;
use crate::archive::{Archive, Found};
use crate::check::{ProblemError, check};
use crate::emit::{Carried, emit};
use crate::holders::{holders, running};
use crate::pack::Effort;
use crate::plan::Plan;
use crate::problem::{NodeId, Problem, Tier, Tiers, ValueId};
use crate::program::Program;
use crate::schedule::Schedule;
use crate::search::Search;
use crate::settings::Limits;
use crate::simulate::{Price, Simulator};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How many budgets the search tries to do well at.
const RUNGS: u32 = 28;
/// Each rung is this much of the way from the one above down to the least that could work.
const RATIO: f64 = 0.88;
/// What memory may cost where there is no budget, as a share of the seconds.
const THRIFT: f64 = 0.01;
/// Where values may be moved, a byte moved counts for so much of the time that it takes: the tier may
/// have time to spare, or not.
const PRICES: [f64; 3] = [1.0, 0.3, 0.05];
/// What is left of a budget for fetching ahead, as shares of what is above the least peak.
const SPARE: [f64; 6] = [0.0, 0.1, 0.2, 0.35, 0.5, 0.7];
/// What packing is expected to lose, as a share of a budget, where transfers fill all of it.
const PACKED: f64 = 0.99;
/// How many schedules are packed at most, and how often each with less to fill.
const PACKINGS: usize = 6;
const TRIES: usize = 3;
/// What a plan may take more seconds than another, as a share, to move less.
const NEAR: f64 = 0.01;
/// A plan with transfers is not looked for again until there is so much more room, as a share.
const ROOM: u64 = 50;

/// How many of the plans with the lowest peaks are packed at most to find the floor.
const FLOORS: usize = 4;

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

/// The ways found to compute a problem under a policy: a curve of seconds over bytes. It doesn't
/// depend on any budget, so seconds never rise with the budget and the floor is one number. Plans
/// are written out and packed only as they are asked for.
#[derive(Debug, Clone)]
pub struct Family {
    program: Program,
    /// Fastest first; each slower one has a smaller peak.
    found: Vec<Found>,
    /// Where values may be moved: what was found with transfers at lower prices.
    cheaper: Vec<Vec<Found>>,
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
        let moves = program.tiers.any();
        let explored = |price| {
            let mut search = Search::new(&program, limits.clone(), price)?;
            if policy != Policy::Keep || moves {
                let all = search.archive.all();
                let top = all.last().map_or(0, |found| found.outcome.peak);
                search.explore(&rungs(top, least(&program)));
            }
            Ok(search.archive.all().rev().cloned().collect())
        };
        let lists = abreast(program.nodes(), prices(&program.tiers).collect(), explored);
        let lists: Result<Vec<_>, ValueId> = lists.into_iter().collect();
        let lists = lists.map_err(lost)?;
        Ok(Family::of(problem, program, lists, Effort::Thorough))
    }

    /// The same decisions for a problem of the same structure: other bytes and seconds, the same
    /// edges. `None` if they cannot be carried over. In a hurry: a plan packed with more care may be
    /// smaller than the floor that is told.
    #[must_use]
    pub fn adapt(&self, problem: &Problem) -> Option<Family> {
        check(problem).ok()?;
        let program = Program::new(problem).ok()?;
        if program.gaps() != self.program.gaps() || program.steps != self.program.steps {
            return None;
        }
        let mut lists = Vec::new();
        let mut simulator = Simulator::new(&program);
        let known = std::iter::once(&self.found).chain(&self.cheaper);
        for (price, known) in prices(&program.tiers).zip(known) {
            simulator.price = price;
            let mut archive = Archive::default();
            for found in known {
                if let Ok(found) = simulator.find(found.settings.clone(), &[]) {
                    archive.offer(&found);
                }
            }
            lists.push(archive.all().rev().cloned().collect::<Vec<Found>>());
        }
        let found = lists.first().is_some_and(|found| !found.is_empty());
        found.then(|| Family::of(problem, program, lists, Effort::Quick))
    }

    fn of(problem: &Problem, program: Program, lists: Vec<Vec<Found>>, effort: Effort) -> Family {
        let mut lists = lists.into_iter();
        let mut family = Family {
            program,
            found: lists.next().unwrap_or_default(),
            cheaper: lists.collect(),
            floor: Floor::default(),
        };
        let least = family.least(problem, effort);
        family.floor = least.map_or_else(Floor::default, |plan| Floor::of(problem, &plan));
        family
    }

    /// The plan with the smallest arena: packing may turn the order of those with the lowest peaks
    /// around, so some are tried.
    fn least(&self, problem: &Problem, effort: Effort) -> Option<Plan> {
        let mut simulator = Simulator::new(&self.program);
        let mut least: Option<Plan> = None;
        let moves = self.program.tiers.any() && effort == Effort::Thorough;
        let tried = match effort {
            Effort::Quick => 1,
            Effort::Thorough => FLOORS,
        };
        let lowest = |found: &'_ [Found]| found.last().map_or(u64::MAX, |f| f.outcome.peak);
        let lists = std::iter::once(&self.found).chain(&self.cheaper);
        let list = lists.min_by_key(|list| lowest(list))?;
        for found in list.iter().rev().take(tried) {
            if least
                .as_ref()
                .is_some_and(|l| l.memory_bytes() <= found.outcome.peak)
            {
                break;
            }
            let Ok(carried) = Carried::new(problem, &self.program, &mut simulator, found) else {
                continue;
            };
            let room = found.outcome.peak.saturating_sub(carried.home_bytes);
            let overlapping = carried.scheduled(problem, room);
            for schedule in [Some(overlapping), moves.then(|| carried.waiting())] {
                let plan = schedule.map(|s| carried.plan(problem, &self.program, &s, effort));
                let plans = least.take().into_iter().chain(plan);
                least = plans.min_by_key(Plan::memory_bytes);
            }
        }
        least
    }

    /// The fastest plan whose arena fits; `problem` is the one that the family is of.
    ///
    /// # Errors
    /// If no plan fits.
    pub fn choose(&self, problem: &Problem, budget_bytes: u64) -> Result<Plan, Refusal> {
        self.choose_until(problem, budget_bytes)
            .map(|(plan, _)| plan)
    }

    /// The fastest plan whose arena fits, and the budget from which on there may be a faster one.
    ///
    /// # Errors
    /// If no plan fits.
    pub fn choose_until(&self, problem: &Problem, budget: u64) -> Result<(Plan, u64), Refusal> {
        let refusal = || Refusal {
            budget_bytes: budget,
            floor: self.floor.clone(),
        };
        // What packing made smaller than the floor by chance is not counted on.
        if budget < self.floor.arena_bytes {
            return Err(refusal());
        }
        if self.program.tiers.any() {
            let chosen = self.choose_moving(problem, budget).ok_or_else(refusal)?;
            return Ok((
                chosen,
                budget
                    .saturating_add(budget / ROOM)
                    .max(budget.saturating_add(1)),
            ));
        }
        let mut simulator = Simulator::new(&self.program);
        let mut faster_from = u64::MAX;
        for found in &self.found {
            if found.outcome.peak > budget {
                faster_from = faster_from.min(found.outcome.peak);
            } else if let Some(plan) = self.emit(problem, &mut simulator, found) {
                if plan.arena_bytes <= budget {
                    return Ok((plan, faster_from));
                }
                faster_from = faster_from.min(plan.arena_bytes);
            }
        }
        Err(refusal())
    }

    /// The fastest plan with transfers, by its schedule: each price and each share of the budget left for
    /// fetching ahead offers one.
    fn choose_moving(&self, problem: &Problem, budget: u64) -> Option<Plan> {
        let mut simulator = Simulator::new(&self.program);
        let floor = self.floor.arena_bytes;
        let mut tried: Vec<&Found> = Vec::new();
        let mut offers: Vec<(Schedule, Carried)> = Vec::new();
        for list in std::iter::once(&self.found).chain(&self.cheaper) {
            for spare in SPARE {
                let left = (budget.saturating_sub(floor) as f64 * (1.0 - spare)) as u64;
                let left = left.saturating_add(floor);
                let fits = |found: &&Found| found.outcome.peak <= left.min(budget);
                let found = list.iter().find(fits).or(list.last());
                let Some(found) = found.filter(|found| found.outcome.peak <= budget) else {
                    continue;
                };
                if tried.iter().any(|known| known.settings == found.settings) {
                    continue;
                }
                tried.push(found);
                if let Ok(carried) = Carried::new(problem, &self.program, &mut simulator, found) {
                    let arena = budget.saturating_sub(carried.home_bytes);
                    let schedule = carried.scheduled(problem, (arena as f64 * PACKED) as u64);
                    offers.push((schedule, carried));
                }
            }
        }
        offers.sort_by(|a, b| a.0.seconds.total_cmp(&b.0.seconds));
        offers.truncate(PACKINGS);
        let packed = abreast(self.program.nodes(), offers, |(schedule, carried)| {
            self.packed(problem, &carried, schedule, budget)
        });
        let mut plans: Vec<Plan> = packed.into_iter().flatten().collect();
        if plans.is_empty() {
            let least = self.least(problem, Effort::Thorough);
            return least.filter(|plan| plan.memory_bytes() <= budget);
        }
        // Of those that are about as fast, the one that moves least.
        let seconds = plans.iter().map(|plan| plan.seconds);
        let fastest = seconds.fold(f64::INFINITY, f64::min);
        plans.retain(|plan| plan.seconds <= fastest * (1.0 + NEAR));
        plans.into_iter().min_by_key(Plan::moved_bytes)
    }

    /// A schedule packed within a budget; where packing loses too much, one that fills less.
    fn packed(
        &self,
        problem: &Problem,
        carried: &Carried,
        mut schedule: Schedule,
        budget: u64,
    ) -> Option<Plan> {
        let room = budget.saturating_sub(carried.home_bytes);
        let mut filled = (room as f64 * PACKED) as u64;
        for _ in 0..TRIES {
            let plan = carried.plan(problem, &self.program, &schedule, Effort::Thorough);
            let over = plan.arena_bytes.saturating_sub(room);
            if over == 0 {
                return Some(plan);
            }
            filled = filled.saturating_sub(over + over / 4);
            schedule = carried.scheduled(problem, filled);
        }
        None
    }

    /// A plan for who states no budget: the smallest that is at most 1% slower than the fastest.
    pub(crate) fn thrifty(&self, problem: &Problem) -> Option<Plan> {
        let fastest = self.found.first()?.outcome.seconds;
        let near = |found: &&Found| found.outcome.seconds <= fastest * (1.0 + THRIFT);
        let found = self.found.iter().take_while(near).last()?;
        let mut simulator = Simulator::new(&self.program);
        self.emit(problem, &mut simulator, found)
    }

    /// The least that would do, and what sets it.
    pub fn floor(&self) -> &Floor {
        &self.floor
    }

    /// The most live bytes and the seconds of every plan before it is packed, fastest first. Its arena
    /// takes as many bytes, or a few percent more.
    pub fn curve(&self) -> impl Iterator<Item = (u64, f64)> {
        let outcomes = self.found.iter().map(|found| found.outcome);
        outcomes.map(|outcome| (outcome.peak, outcome.seconds))
    }

    /// All plans, fastest first; each slower one has a smaller arena.
    pub fn plans(&self, problem: &Problem) -> Vec<Plan> {
        pareto(self.emit_all(problem).collect())
    }

    fn emit_all(&self, problem: &Problem) -> impl Iterator<Item = Plan> {
        let mut simulator = Simulator::new(&self.program);
        let found = self.found.iter();
        found.filter_map(move |found| self.emit(problem, &mut simulator, found))
    }

    fn emit(&self, problem: &Problem, simulator: &mut Simulator, found: &Found) -> Option<Plan> {
        let with = (found.outcome.peak, Effort::Thorough);
        emit(problem, &self.program, simulator, found, with).ok()
    }

    /// The figures of all plans, or of about `count` of them, evenly over the bytes between the fastest
    /// and the smallest. Their instruction lists, which take memory, are left empty.
    pub(crate) fn some(&self, problem: &Problem, count: usize) -> Vec<Plan> {
        let figures = |plan| Plan {
            instructions: Vec::new(),
            ..plan
        };
        if count >= self.found.len() {
            return pareto(self.emit_all(problem).map(figures).collect());
        }
        let peaks = || self.found.iter().map(|found| found.outcome.peak);
        let (top, least) = (peaks().max().unwrap_or(0), self.floor.arena_bytes);
        let step = top.saturating_sub(least) / count.max(1) as u64;
        let budgets = (0..=count as u64).map(|i| least + step * i);
        let chosen = budgets.chain([u64::MAX]);
        let chosen = chosen.filter_map(|budget| self.choose(problem, budget).ok());
        pareto(chosen.map(figures).collect())
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Family) -> bool {
        self.found == other.found && self.cheaper == other.cheaper && self.floor == other.floor
    }
}

/// What moving a byte may count for.
fn prices(tiers: &Tiers) -> impl Iterator<Item = Price> {
    let price = |share: f64| {
        let mut price = Price::default();
        for tier in Tier::ALL {
            if let Some(link) = tiers.link(tier) {
                price.read[tier as usize] = share / link.read_while_writing;
                price.write[tier as usize] = share / link.write_while_reading;
            }
        }
        price
    };
    let count = if tiers.any() { PRICES.len() } else { 1 };
    PRICES.into_iter().take(count).map(price)
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

#[cfg(test)]
mod tests;
