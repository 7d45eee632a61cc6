//! Preferences among pins: they hold in every plan as long as some plan that follows all of them
//! fits; below that the planner decides about their values by itself.

use crate::check::ProblemError;
use crate::family::{Family, Floor, Policy, Refusal};
use crate::plan::Plan;
use crate::problem::{Pin, Problem};

/// The plans of a problem, with its preferences followed where that can be.
///
/// A plan that follows them is passed over in one case: where another needs less memory than any
/// that does, and is no slower. So predicted seconds never rise with the budget here either.
#[derive(Debug, Clone, PartialEq)]
pub struct Families {
    /// With each preference as a demand; none without preferences.
    following: Option<Family>,
    free: Family,
}

impl Families {
    /// Plans a problem.
    ///
    /// # Errors
    /// If the problem makes no sense.
    pub fn build(problem: &Problem, policy: Policy) -> Result<Families, ProblemError> {
        let following = demanding(problem).map(|problem| Family::build(&problem, policy));
        Ok(Families {
            following: following.transpose()?,
            free: Family::build(problem, policy)?,
        })
    }

    /// The fastest plan whose arena fits.
    ///
    /// # Errors
    /// If no plan fits.
    pub fn choose(&self, budget_bytes: u64) -> Result<&Plan, Refusal> {
        let Some(following) = &self.following else {
            return self.free.choose(budget_bytes);
        };
        let below = following.floor().arena_bytes.saturating_sub(1);
        let found = following.choose(budget_bytes);
        match self.free.choose(budget_bytes.min(below)) {
            Ok(free)
                if found
                    .as_ref()
                    .map_or(true, |found| free.seconds <= found.seconds) =>
            {
                Ok(free)
            }
            Ok(_) => found,
            Err(refusal) => found.map_err(|found| {
                if found.floor == *self.floor() {
                    found
                } else {
                    refusal
                }
            }),
        }
    }

    /// The least that would do, and what sets it.
    pub fn floor(&self) -> &Floor {
        let free = self.free.floor();
        match self.following.as_ref().map(Family::floor) {
            Some(floor) if floor.arena_bytes <= free.arena_bytes => floor,
            _ => free,
        }
    }

    /// The plans that may be chosen, fastest first; each slower one has a smaller arena.
    pub fn plans(&self) -> impl DoubleEndedIterator<Item = &Plan> {
        let (following, below) = match &self.following {
            Some(family) => (family.plans(), family.floor().arena_bytes),
            None => (&[][..], u64::MAX),
        };
        let free = self.free.plans();
        let first = free.iter().find(|plan| plan.arena_bytes < below);
        let fastest = first.map_or(f64::INFINITY, |plan| plan.seconds);
        let following = following.iter().filter(move |plan| plan.seconds < fastest);
        following.chain(free.iter().filter(move |plan| plan.arena_bytes < below))
    }
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
