//! What a search found, for all budgets: seconds over bytes.

use crate::abreast::abreast;
use crate::emit::{Carried, emit};
use crate::explain::Floor;
use crate::pack::Effort;
use crate::plan::Plan;
use crate::problem::{Problem, Tier, Tiers};
use crate::program::Program;
use crate::search::Archive;
use crate::simulate::{Candidate, Price, Simulator};

/// Where values may be moved, a byte moved counts for so much of the time that it takes: the tier may
/// have time to spare, or not.
const PRICES: [f64; 3] = [1.0, 0.3, 0.05];
/// How many of the plans with the lowest peaks are packed at most to find the floor.
const FLOORS: usize = 4;

/// Candidates for all budgets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    /// Fastest first; each slower one has a smaller peak.
    pub(crate) found: Vec<Candidate>,
    /// Where values may be moved: what was found with transfers at lower prices.
    pub(crate) cheaper: Vec<Vec<Candidate>>,
    /// Runs that were simulated to find all that.
    pub(crate) work: u64,
    /// With how much care the floor is looked for.
    effort: Effort,
}

impl Curve {
    /// What a search finds at each price, fastest first.
    pub(crate) fn find(
        program: &Program,
        search: impl Fn(Price) -> (Vec<Candidate>, u64) + Sync,
    ) -> Curve {
        let prices = prices(&program.tiers).collect();
        let searched = abreast(program.nodes(), prices, search);
        let work = searched.iter().map(|searched| searched.1).sum();
        let mut lists = searched.into_iter().map(|searched| searched.0);
        Curve {
            found: lists.next().unwrap_or_default(),
            cheaper: lists.collect(),
            work,
            effort: Effort::Thorough,
        }
    }

    /// The least that would do, and what sets it; `kept` are plans that are there without a search. Takes
    /// as long as packing some plans does: who has no arena need not ask.
    pub(crate) fn floor<P: Iterator<Item = Plan>>(
        &self,
        problem: &Problem,
        program: &Program,
        kept: impl FnOnce() -> P,
    ) -> Floor {
        let least = self.least(problem, program, self.effort);
        let least = if self.effort == Effort::Thorough {
            // Packing may make even the fastest plan the smallest, or one that keeps all.
            let lowest = least.as_ref().map_or(u64::MAX, Plan::memory_bytes);
            let highest = self.found.first().map_or(0, |found| found.outcome.peak);
            let fastest = self.found.first().filter(|_| highest < lowest);
            let fastest = fastest.and_then(|found| {
                let with = (highest, Effort::Thorough);
                emit(problem, program, &mut Simulator::new(program), found, with).ok()
            });
            let kept = (highest < lowest).then(kept).into_iter().flatten();
            let least = least.into_iter().chain(fastest).chain(kept);
            least.min_by_key(Plan::memory_bytes)
        } else {
            least
        };
        least.map_or_else(Floor::default, |plan| Floor::of(problem, &plan))
    }

    /// The same decisions for another program of the same structure; `None` if none of them works.
    pub(crate) fn adapt(&self, program: &Program) -> Option<Curve> {
        let mut simulator = Simulator::new(program);
        let mut adapted = |(price, known): (Price, &Vec<Candidate>)| {
            simulator.set_price(price);
            let mut archive = Archive::default();
            for found in known {
                if let Ok(found) = simulator.find(found.settings.clone(), &[]) {
                    archive.offer(&found);
                }
            }
            archive.all().rev().cloned().collect::<Vec<Candidate>>()
        };
        let found = adapted((prices(&program.tiers).next()?, &self.found));
        let cheaper = prices(&program.tiers).skip(1).zip(&self.cheaper);
        let cheaper = cheaper.map(adapted).collect();
        if found.is_empty() {
            return None;
        }
        Some(Curve {
            found,
            cheaper,
            work: simulator.work,
            effort: Effort::Quick,
        })
    }

    /// What was found at each price.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &Vec<Candidate>> {
        std::iter::once(&self.found).chain(&self.cheaper)
    }

    /// The plan with the smallest arena: packing may turn the order of those with the lowest peaks
    /// around, so some are tried.
    pub(crate) fn least(
        &self,
        problem: &Problem,
        program: &Program,
        effort: Effort,
    ) -> Option<Plan> {
        let mut simulator = Simulator::new(program);
        let mut least: Option<Plan> = None;
        let moves = program.tiers.any() && effort == Effort::Thorough;
        let tried = match effort {
            Effort::Thorough => FLOORS,
            Effort::Linear | Effort::Quick => 1,
        };
        let lowest = |found: &'_ [Candidate]| found.last().map_or(u64::MAX, |f| f.outcome.peak);
        let list = self.lists().min_by_key(|list| lowest(list))?;
        for found in list.iter().rev().take(tried) {
            if least
                .as_ref()
                .is_some_and(|l| l.memory_bytes() <= found.outcome.peak)
            {
                break;
            }
            let Ok(carried) = Carried::new(problem, program, &mut simulator, found) else {
                continue;
            };
            let room = found.outcome.peak.saturating_sub(carried.home_bytes);
            let overlapping = carried.scheduled(problem, room);
            for schedule in [Some(overlapping), moves.then(|| carried.waiting())] {
                let plan = schedule.map(|s| carried.plan(problem, program, &s, effort));
                let plans = least.take().into_iter().chain(plan);
                least = plans.min_by_key(Plan::memory_bytes);
            }
        }
        least
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
