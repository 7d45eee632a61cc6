//! How many bytes the plan of a problem may use, beside what the process and state use.

use crate::engine::Engine;
use crate::engine::state::State;
use crate::problem::compiled::{Compiled, Rounding};

impl Engine {
    /// Reserves what the process takes for a problem itself; answers what a plan of it may take.
    pub(crate) fn budget_for(&self, state: &mut State, compiled: &Compiled) -> u64 {
        self.reserve_for(state, compiled.stands_for);
        self.plan_budget(state, compiled)
    }

    /// What a plan of a problem may take: what is left beside state, and what cells take that it may
    /// move.
    pub(crate) fn plan_budget(&self, state: &State, compiled: &Compiled) -> u64 {
        let left = self.0.store.budget();
        let left = left.saturating_sub(self.beside(state, compiled));
        self.rounding(compiled).usable(left)
    }

    /// The least that such a budget has to be for a plan of so many bytes.
    pub(crate) fn least_budget(&self, compiled: &Compiled, plan_bytes: u64) -> u64 {
        self.rounding(compiled).least_budget(plan_bytes)
    }

    /// What the cells that a plan decides about take in memory at most beside what it counts.
    pub(crate) fn rounding(&self, compiled: &Compiled) -> Rounding {
        let (store, problem) = (&self.0.store, &compiled.problem);
        if !self.0.tiers.any() {
            return Rounding::default();
        }
        compiled.rounding(
            |bytes| store.room_cost(bytes),
            |bytes| problem.footprint(bytes),
        )
    }

    /// What state takes beside the plan of a problem: cells that the plan decides about belong to it.
    pub(crate) fn beside(&self, state: &State, compiled: &Compiled) -> u64 {
        let store = &self.0.store;
        let posed = state.memory.cells.memory_bytes(store, compiled.cells());
        store.state_bytes().saturating_sub(posed)
    }
}
