//! Budgets of live bytes: for who has an allocator of its own, and no arena.

use crate::emit::emit;
use crate::explain::{Floor, Refusal};
use crate::family::Family;
use crate::family::preferences::Families;
use crate::pack::Effort;
use crate::plan::Plan;
use crate::problem::Problem;
use crate::simulate::{Candidate, Simulator};

impl Families {
    /// The fastest plan with at most so many live bytes. Offsets are told too, of an arena that may be
    /// higher. Without tiers: what is alive while something moves depends on how it goes.
    ///
    /// # Errors
    /// If no plan has so few.
    pub fn choose_alive(&self, problem: &Problem, budget: u64) -> Result<Plan, Refusal> {
        let families = self.families();
        let mut plans = families.filter_map(|(of, family)| {
            let of = of.unwrap_or(problem);
            let found = family.candidates().find(|c| c.outcome.peak <= budget)?;
            family.written(of, found)
        });
        plans.next().ok_or_else(|| Refusal {
            budget_bytes: budget,
            floor: self.floor_alive(problem),
        })
    }

    /// The least live bytes that a plan was found for, in [`Floor::arena_bytes`], and what sets them.
    #[must_use]
    pub fn floor_alive(&self, problem: &Problem) -> Floor {
        let families = self.families();
        let floors = families.filter_map(|(of, family)| {
            let of = of.unwrap_or(problem);
            let least = family.candidates().min_by_key(|c| c.outcome.peak)?;
            let plan = family.written(of, least)?;
            Some(Floor {
                arena_bytes: plan.live_bytes,
                ..Floor::of(of, &plan)
            })
        });
        floors
            .min_by_key(|floor| floor.arena_bytes)
            .unwrap_or_default()
    }

    /// The most live bytes and the seconds of the plans that there are, or of about `count` of them,
    /// evenly over the bytes: fastest first, each slower one with fewer bytes.
    #[must_use]
    pub fn outcomes_alive(&self, count: usize) -> Vec<(u64, f64)> {
        let families = self.families();
        let mut all: Vec<(u64, f64)> = families
            .flat_map(|(_, family)| family.candidates())
            .map(|candidate| (candidate.outcome.peak, candidate.outcome.seconds))
            .collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let mut least = u64::MAX;
        all.retain(|&(bytes, _)| {
            let fewer = bytes < least;
            least = least.min(bytes);
            fewer
        });
        let (Some(first), Some(last)) = (all.first().copied(), all.last().copied()) else {
            return all;
        };
        let step = ((first.0 - last.0) / count.max(1) as u64).max(1);
        let mut next = first.0;
        all.retain(|(bytes, _)| {
            let shown = *bytes <= next || *bytes == last.0;
            if shown {
                next = bytes.saturating_sub(step);
            }
            shown
        });
        all
    }
}

impl Family {
    /// What was found, fastest first.
    fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        // A plan that keeps all needs no search.
        let kept = self.kept_once();
        let rest = std::iter::once_with(|| self.found()).flatten();
        kept.into_iter().chain(rest)
    }

    /// A plan, packed in haste: its offsets do not matter.
    fn written(&self, problem: &Problem, found: &Candidate) -> Option<Plan> {
        let with = (found.outcome.peak, Effort::Linear);
        let mut simulator = Simulator::new(self.program());
        emit(problem, self.program(), &mut simulator, found, with).ok()
    }
}
