//! The plans of a problem, and the choice among them.
//!
//! Where all that is made can be kept as long as somebody needs it, there is nothing to decide: each node
//! runs once, and nothing is faster. That plan is made in time linear in the nodes. Only where it does
//! not fit are others looked for ([`crate::family::curve`]), once for all budgets.

mod alive;
mod curve;
mod moving;
mod preferences;

pub use preferences::Families;

use crate::emit::emit;
use crate::explain::{Floor, Refusal};
use crate::family::curve::Curve;
use crate::pack::Effort;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::problem::Problem;
use crate::program::{ProblemError, Program, check};
use crate::search::{Limits, Search};
use crate::simulate::{Candidate, Price, Simulator};
use std::sync::OnceLock;

/// What memory may cost where there is no budget, as a share of the seconds.
const THRIFT: f64 = 0.01;
/// A plan with transfers is not looked for again until there is so much more room, as a share.
const ROOM: u64 = 50;

/// The ways to compute a problem under a policy: one that keeps as much as the policy lets it, and, once
/// somebody needs them, a curve of seconds over bytes. It doesn't depend on any budget, so seconds never
/// rise with the budget and the floor is one number. Plans are written out and packed only as they are
/// asked for.
#[derive(Debug, Clone)]
pub struct Family {
    program: Program,
    limits: Limits,
    policy: Policy,
    /// As much kept as the limits let it.
    kept: Candidate,
    /// Runs that were simulated to find that.
    work: u64,
    /// What else there is, once somebody needed it.
    curve: OnceLock<Curve>,
    /// The least arena that would do, once somebody asked.
    floor: OnceLock<Floor>,
}

impl Family {
    /// Poses a problem to the planner; what takes long is put off until a budget asks for it.
    ///
    /// # Errors
    /// If the problem makes no sense.
    pub fn build(problem: &Problem, policy: Policy) -> Result<Family, ProblemError> {
        check(problem)?;
        let program = Program::new(problem)?;
        let mut limits = Limits::new(problem, &program, policy);
        let kept = limits.relax(&program);
        let (kept, work) = kept.map_err(|value| ProblemError::Lost { value })?;
        Ok(Family {
            program,
            limits,
            policy,
            kept,
            work,
            curve: OnceLock::new(),
            floor: OnceLock::new(),
        })
    }

    /// This family with the decisions that were made for a problem of the same structure: other bytes
    /// and seconds, the same edges. `None` if none were made, or they cannot be carried over. In a hurry:
    /// a plan packed with more care may be smaller than the floor that is told.
    #[must_use]
    pub fn adapt(&self, known: &Family) -> Option<Family> {
        let program = &self.program;
        if program.gaps() != known.program.gaps() || program.steps != known.program.steps {
            return None;
        }
        let curve = known.curve.get()?.adapt(program)?;
        Some(Family {
            curve: OnceLock::from(curve),
            floor: OnceLock::new(),
            ..self.clone()
        })
    }

    /// What else there is than keeping all, looked for if it was not yet.
    fn curve(&self) -> &Curve {
        self.curve.get_or_init(|| {
            let searches = self.policy != Policy::Keep || self.program.tiers.any();
            Curve::find(&self.program, |price| self.search(price, searches))
        })
    }

    /// A search at a price of moving a byte, done or left at its beginning.
    fn search(&self, price: Price, all: bool) -> (Vec<Candidate>, u64) {
        let mut search = Search::new(&self.program, &self.limits, &self.kept, price);
        if all {
            search.explore();
        }
        let found = search.archive.all().rev().cloned().collect();
        (found, search.simulator.work)
    }

    /// Whether other plans than the one that keeps all have been looked for.
    #[must_use]
    pub fn is_searched(&self) -> bool {
        self.curve.get().is_some()
    }

    /// How many runs of nodes have been simulated: what planning took, on any machine.
    #[must_use]
    pub fn simulated_runs(&self) -> u64 {
        self.work + self.curve.get().map_or(0, |curve| curve.work)
    }

    /// The plan that keeps as much as it may, if it runs each node once and moves nothing, so that none
    /// is faster: packed at once, then with care.
    fn kept_plans<'a>(&'a self, problem: &'a Problem) -> impl Iterator<Item = Plan> + 'a {
        let once = self.kept_once().is_some();
        let efforts = once.then_some([Effort::Linear, Effort::Thorough]);
        let plan = |effort| {
            let mut simulator = Simulator::new(&self.program);
            let with = (self.kept.outcome.peak, effort);
            emit(problem, &self.program, &mut simulator, &self.kept, with).ok()
        };
        efforts.into_iter().flatten().filter_map(plan)
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// What keeps as much as it may, if it runs each node once and moves nothing.
    pub(crate) fn kept_once(&self) -> Option<&Candidate> {
        Some(&self.kept).filter(|kept| kept.outcome.is_least(&self.program))
    }

    /// What a search found, fastest first; it takes place now, if it did not yet.
    pub(crate) fn found(&self) -> &[Candidate] {
        &self.curve().found
    }

    /// The most live bytes of the plan that keeps all.
    pub(crate) fn kept_peak(&self) -> u64 {
        self.kept.outcome.peak
    }

    /// The plan that keeps all, if it fits.
    pub(crate) fn all_kept(&self, problem: &Problem, budget: u64) -> Option<Plan> {
        if self.kept.outcome.peak > budget {
            return None;
        }
        let mut plans = self.kept_plans(problem);
        plans.find(|plan| plan.memory_bytes() <= budget)
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
        if let Some(plan) = self.all_kept(problem, budget) {
            return Ok((plan, u64::MAX));
        }
        let (curve, floor) = (self.curve(), self.floor(problem));
        let refusal = || Refusal {
            budget_bytes: budget,
            floor: floor.clone(),
        };
        // What packing made smaller than the floor by chance is not counted on.
        if budget < floor.arena_bytes {
            return Err(refusal());
        }
        if self.program.tiers.any() {
            let chosen = moving::choose(problem, &self.program, (curve, floor), budget);
            let more = budget.saturating_add(budget / ROOM);
            let chosen = chosen.map(|plan| (plan, more.max(budget.saturating_add(1))));
            return chosen.ok_or_else(refusal);
        }
        let mut simulator = Simulator::new(&self.program);
        let mut faster_from = u64::MAX;
        for found in &curve.found {
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

    /// A plan for who states no budget: a small one that is at most 1% slower than the fastest, found in
    /// time linear in the nodes.
    pub(crate) fn thrifty(&self, problem: &Problem) -> Option<Plan> {
        if !self.kept.outcome.is_least(&self.program) {
            let found = &self.curve().found;
            let most = found.first()?.outcome.seconds * (1.0 + THRIFT);
            let near = found
                .iter()
                .take_while(|found| found.outcome.seconds <= most);
            return self.emit(problem, &mut Simulator::new(&self.program), near.last()?);
        }
        let mut search = Search::new(&self.program, &self.limits, &self.kept, Price::default());
        let found = search.save(THRIFT)?;
        let with = (found.outcome.peak, Effort::Linear);
        emit(problem, &self.program, &mut search.simulator, &found, with).ok()
    }

    /// The least that would do, and what sets it.
    pub fn floor(&self, problem: &Problem) -> &Floor {
        self.floor.get_or_init(|| {
            let kept = || self.kept_plans(problem);
            self.curve().floor(problem, &self.program, kept)
        })
    }

    /// The most live bytes and the seconds of every plan before it is packed, fastest first. Its arena
    /// takes as many bytes, or a few percent more.
    pub fn outcomes(&self) -> impl Iterator<Item = (u64, f64)> {
        let outcomes = self.curve().found.iter().map(|found| found.outcome);
        outcomes.map(|outcome| (outcome.peak, outcome.seconds))
    }

    /// All plans, fastest first; each slower one has a smaller arena.
    pub fn plans(&self, problem: &Problem) -> Vec<Plan> {
        pareto(self.emit_all(problem).collect())
    }

    fn emit_all(&self, problem: &Problem) -> impl Iterator<Item = Plan> {
        let mut simulator = Simulator::new(&self.program);
        let found = self.curve().found.iter();
        found.filter_map(move |found| self.emit(problem, &mut simulator, found))
    }

    fn emit(
        &self,
        problem: &Problem,
        simulator: &mut Simulator,
        found: &Candidate,
    ) -> Option<Plan> {
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
        let curve = self.curve();
        if count >= curve.found.len() {
            return pareto(self.emit_all(problem).map(figures).collect());
        }
        let peaks = curve.found.iter().map(|found| found.outcome.peak);
        let (top, least) = (peaks.max().unwrap_or(0), self.floor(problem).arena_bytes);
        let step = top.saturating_sub(least) / count.max(1) as u64;
        let budgets = (0..=count as u64).map(|i| least + step * i);
        let chosen = budgets.chain([u64::MAX]);
        let chosen = chosen.filter_map(|budget| self.choose(problem, budget).ok());
        pareto(chosen.map(figures).collect())
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Family) -> bool {
        self.kept == other.kept && self.curve.get() == other.curve.get()
    }
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
