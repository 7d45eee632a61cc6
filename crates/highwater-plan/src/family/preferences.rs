//! Preferences among pins: they hold in every plan as long as some plan that follows all of them
//! fits; below that the planner decides about their values by itself. And soft guards: the plan that
//! keeps everything has them, if it fits; all others are those of the problem without them.

use crate::explain::{Floor, Refusal};
use crate::family::Family;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::problem::{Pin, Problem};
use crate::program::ProblemError;
use crate::search::least;

/// The plans of a problem, with its preferences followed where that can be.
///
/// A plan that follows them is passed over in one case: where another needs less memory than any
/// that does, and is no slower. So predicted seconds never rise with the budget here either.
#[derive(Debug, Clone, PartialEq)]
pub struct Families {
    /// Where there are soft guards: the problem without them, which the others are of, and what keeps
    /// everything, as long as the guards need it.
    guarded: Option<(Problem, Family)>,
    /// With each preference as a demand; none without preferences.
    following: Option<Family>,
    free: Family,
}

impl Families {
    /// Poses a problem to the planner; see [`Family::build`].
    ///
    /// # Errors
    /// If the problem makes no sense.
    pub fn build(problem: &Problem, policy: Policy) -> Result<Families, ProblemError> {
        let guarded = match unguarded(problem) {
            Some(unguarded) => {
                let demanding = demanding(problem);
                let all = Family::build(demanding.as_ref().unwrap_or(problem), policy)?;
                Some((unguarded, all))
            }
            None => None,
        };
        let problem = guarded.as_ref().map_or(problem, |(unguarded, _)| unguarded);
        let following = demanding(problem).map(|problem| Family::build(&problem, policy));
        Ok(Families {
            following: following.transpose()?,
            guarded: guarded.clone(),
            free: Family::build(problem, policy)?,
        })
    }

    /// These with the decisions made for a problem of the same structure; see [`Family::adapt`].
    #[must_use]
    pub fn adapt(&self, known: &Families) -> Option<Families> {
        let following = match (&self.following, &known.following) {
            (Some(family), Some(known)) => Some(family.adapt(known)?),
            _ => None,
        };
        let free = self.free.adapt(&known.free)?;
        Some(Families {
            guarded: self.guarded.clone(),
            following,
            free,
        })
    }

    /// Whether a budget is less than what one run reads, so that no plan fits. Known without a search.
    #[must_use]
    pub fn is_hopeless(&self, budget: u64) -> bool {
        least(self.free.program()) > budget
    }

    /// Whether other plans than those that keep all have been looked for.
    #[must_use]
    pub fn is_searched(&self) -> bool {
        self.free.is_searched() || self.following.as_ref().is_some_and(Family::is_searched)
    }

    /// The plan that keeps all and runs each node once, if it follows all preferences and fits: no other
    /// is faster, and nothing has to be searched for it.
    #[must_use]
    pub fn all_kept(&self, problem: &Problem, budget: u64) -> Option<Plan> {
        if let Some(plan) = self.guarded_plan(problem, budget) {
            return Some(plan);
        }
        let family = self.following.as_ref().unwrap_or(&self.free);
        family.all_kept(self.unguarded(problem), budget)
    }

    /// Those whose plans may be chosen, most wanted first: of a problem of their own, or of the one asked
    /// about.
    pub(crate) fn families(&self) -> impl Iterator<Item = (Option<&Problem>, &Family)> {
        let unguarded = self.guarded.as_ref().map(|(unguarded, _)| unguarded);
        let families = self.following.iter().chain([&self.free]);
        families.map(move |family| (unguarded, family))
    }

    /// The problem that all but the guarded plan are of.
    fn unguarded<'a>(&'a self, problem: &'a Problem) -> &'a Problem {
        let guarded = self.guarded.as_ref();
        guarded.map_or(problem, |(unguarded, _)| unguarded)
    }

    /// The plan that keeps everything, for soft guards too, if there are any and it fits.
    fn guarded_plan(&self, problem: &Problem, budget: u64) -> Option<Plan> {
        let (_, family) = self.guarded.as_ref()?;
        family.all_kept(problem, budget)
    }

    /// The fastest plan whose arena fits; `problem` is the one that the families are of.
    ///
    /// # Errors
    /// If no plan fits.
    pub fn choose(&self, problem: &Problem, budget_bytes: u64) -> Result<Plan, Refusal> {
        self.choose_until(problem, budget_bytes)
            .map(|(plan, _)| plan)
    }

    /// The fastest plan whose arena fits, and the budget from which on there may be another.
    ///
    /// # Errors
    /// If no plan fits.
    pub fn choose_until(&self, problem: &Problem, budget: u64) -> Result<(Plan, u64), Refusal> {
        let Some((unguarded, family)) = &self.guarded else {
            return self.choose_unguarded(problem, budget);
        };
        if let Some(plan) = family.all_kept(problem, budget) {
            return Ok((plan, u64::MAX));
        }
        // From the least on that the guards might do with, they are tried again.
        let guarded = family.kept_peak().max(budget.saturating_add(1));
        let chosen = self.choose_unguarded(unguarded, budget)?;
        Ok((chosen.0, chosen.1.min(guarded)))
    }

    fn choose_unguarded(&self, problem: &Problem, budget: u64) -> Result<(Plan, u64), Refusal> {
        let Some(following) = &self.following else {
            return self.free.choose_until(problem, budget);
        };
        if let Some(plan) = following.all_kept(problem, budget) {
            return Ok((plan, u64::MAX));
        }
        let least = following.floor(problem).arena_bytes;
        let below = least.saturating_sub(1);
        let found = following.choose_until(problem, budget);
        let free = self.free.choose_until(problem, budget.min(below));
        match (found, free) {
            // Above the floor of those that follow, only they have something new to offer.
            (Ok((found, f)), Ok((free, _))) if free.seconds > found.seconds => Ok((found, f)),
            (Ok((_, f)), Ok((free, _))) => Ok((free, f)),
            (Err(_), Ok((free, u))) => Ok((free, u.min(least))),
            (Ok(found), Err(_)) => Ok(found),
            (Err(_), Err(_)) => Err(Refusal {
                budget_bytes: budget,
                floor: self.floor(problem).clone(),
            }),
        }
    }

    /// A plan for who states no budget: what costs under 1% to recompute is not kept. `None` if
    /// there is no plan at all.
    #[must_use]
    pub fn thrifty(&self, problem: &Problem) -> Option<Plan> {
        if let Some((_, family)) = &self.guarded {
            return family.thrifty(problem);
        }
        let family = self.following.as_ref().unwrap_or(&self.free);
        family.thrifty(problem)
    }

    /// The least that would do, and what sets it.
    pub fn floor(&self, problem: &Problem) -> &Floor {
        let problem = self.unguarded(problem);
        let free = self.free.floor(problem);
        match self.following.as_ref().map(|family| family.floor(problem)) {
            Some(floor) if floor.arena_bytes <= free.arena_bytes => floor,
            _ => free,
        }
    }

    /// The figures of the plans that may be chosen, or of about `count` of them, fastest first; each
    /// slower one has a smaller arena. Their instruction lists, which take memory, are left empty.
    pub fn plans(&self, problem: &Problem, count: usize) -> Vec<Plan> {
        let problem = self.unguarded(problem);
        let (following, below) = match &self.following {
            Some(family) => (
                family.some(problem, count),
                family.floor(problem).arena_bytes,
            ),
            None => (Vec::new(), u64::MAX),
        };
        let mut free = self.free.some(problem, count);
        free.retain(|plan| plan.arena_bytes < below);
        let fastest = free.first().map_or(f64::INFINITY, |plan| plan.seconds);
        let following = following.into_iter();
        let faster = following.filter(|plan| plan.seconds < fastest);
        faster.chain(free).collect()
    }
}

/// The problem without its soft guards, which count as done; nothing if it has none.
fn unguarded(problem: &Problem) -> Option<Problem> {
    if !problem.nodes.iter().any(|node| node.soft && !node.done) {
        return None;
    }
    let mut unguarded = problem.clone();
    for node in &mut unguarded.nodes {
        node.done |= node.soft;
    }
    Some(unguarded)
}

/// The problem with its preferences as demands; nothing if it has none.
fn demanding(problem: &Problem) -> Option<Problem> {
    let prefers = |pin: Pin| matches!(pin, Pin::PreferKeep | Pin::PreferRecompute);
    if !problem.values.iter().any(|value| prefers(value.pin)) {
        return None;
    }
    let mut demanding = problem.clone();
    for value in &mut demanding.values {
        value.pin = match value.pin {
            Pin::PreferKeep => Pin::Keep,
            Pin::PreferRecompute => Pin::Recompute,
            pin => pin,
        };
    }
    Some(demanding)
}
