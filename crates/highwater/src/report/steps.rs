//! The plans that a step is made of.

use super::price::{Price, price, price_of_runs};
use super::told::{Around, Told};
use crate::problem::compiled::whole_pages;
use crate::problem::ran::Ran;
use crate::store::limits::Stated;
use highwater_plan::Plan;
use std::sync::Arc;

/// One plan of a step.
#[derive(Debug)]
pub(crate) struct StepPlan {
    pub(super) told: Arc<Told>,
    pub(super) plan: Arc<Plan>,
    pub(super) fits: bool,
    /// Without the cells that the plan decided about.
    pub(super) state_bytes: u64,
    pub(super) stated: Stated,
    /// What runs of the plan before the next one takes over.
    pub(super) ran: Price,
}

/// The plans of the step under way, and of the last one that ended.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    now: Vec<StepPlan>,
    last: Vec<StepPlan>,
    repeats: bool,
}

/// Plans that a step under way is remembered by. Only a program that reads on and on without ever
/// taking a step has more.
const PLANS: usize = 32;

impl Steps {
    /// Adds a plan to the step under way.
    pub(crate) fn add(&mut self, plan: StepPlan) {
        if self.now.len() == PLANS {
            self.now.remove(0);
        }
        self.now.push(plan);
    }

    /// Ends the step.
    pub(crate) fn end(&mut self) {
        let last = std::mem::replace(&mut self.last, std::mem::take(&mut self.now));
        let mut both = last.iter().zip(&self.last);
        // Of more the first are forgotten.
        let all = last.len() == self.last.len() && last.len() < PLANS;
        self.repeats = all && both.all(|(before, now)| Arc::ptr_eq(&before.plan, &now.plan));
    }

    /// Exchanges the step under way for that of another recording.
    pub(crate) fn exchange(&mut self, other: &mut Vec<StepPlan>) {
        std::mem::swap(&mut self.now, other);
    }

    /// Whether the last whole step ran the very plans of the one before.
    pub(crate) fn repeat(&self) -> bool {
        self.repeats
    }

    /// Forgets the step under way.
    pub(crate) fn give_up(&mut self) {
        self.now.clear();
    }

    /// The plans of the last whole step; what there is of one, if none ended yet.
    pub(super) fn newest(&self) -> &[StepPlan] {
        if self.last.is_empty() {
            &self.now
        } else {
            &self.last
        }
    }
}

impl StepPlan {
    /// A plan of a problem, and what ran of it; nothing, if it does not fit.
    pub(crate) fn new(
        told: Arc<Told>,
        plan: Arc<Plan>,
        around: &Around<'_>,
        ran: Option<&Ran>,
    ) -> Self {
        let of_runs = |ran| price_of_runs(&plan, around.compiled, ran);
        Self {
            told,
            fits: ran.is_some(),
            state_bytes: around.state_bytes,
            stated: around.stated,
            ran: ran.map_or_else(|| price(&plan), of_runs),
            plan,
        }
    }

    /// What all takes where the plan takes so many bytes.
    pub(super) fn whole(&self, bytes: u64) -> u64 {
        self.stated.whole(whole_pages(bytes) + self.state_bytes)
    }

    pub(super) fn floor_bytes(&self) -> u64 {
        let floor = self.told.floor();
        floor.map_or(0, |floor| self.whole(floor.arena_bytes))
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.whole(self.plan.memory_bytes())
    }

    /// How much of the plan's time runs.
    pub(super) fn share(&self) -> f64 {
        if self.plan.seconds > 0.0 {
            self.ran.seconds_per_step / self.plan.seconds
        } else {
            1.0
        }
    }

    /// The price of the fastest plan that fits; of the least, if none does.
    pub(super) fn price(&self, budget_bytes: u64) -> Option<Price> {
        let fits = |price: &&Price| self.whole(price.bytes) <= budget_bytes;
        let prices = self.told.prices();
        prices.iter().find(fits).or(prices.last()).copied()
    }
}
