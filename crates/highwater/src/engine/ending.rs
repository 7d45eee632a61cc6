//! How evaluations end: well, or not.

use crate::engine::Engine;
use crate::engine::request::Request;
use crate::engine::state::State;
use crate::pending::Progress;
use crate::run::execute::{Failed, execute};
use crate::{Error, Result};
use highwater_graph::Location;
use highwater_graph::{Operand, ValueId};
use std::collections::BTreeSet;
use std::time::Instant;

impl Engine {
    /// Ends the generation: handles become values of their own, or expire.
    pub(crate) fn finish(&self, state: &mut State, location: Location) -> Result<()> {
        let adopted = state.adopt_grads();
        if state.pending.skip.is_some() {
            state.pending.graph.leave_out_updates();
        }
        state.pending.graph.mark_evaluated();
        state.end(location);
        self.0.store.keep_below(state.residents_end());
        adopted
    }

    /// A read that failed. If there was no room for it, the graph stays pending.
    pub(crate) fn abandon_read(
        &self,
        state: &mut State,
        failed: Failed,
        location: Location,
    ) -> Error {
        match failed.error {
            Error::OverBudget { .. } | Error::State { .. } => failed.error,
            _ => self.abandon(state, failed, location),
        }
    }

    /// A failed evaluation: the graph is gone. If a cell may have been written, the engine is
    /// poisoned; otherwise all cells are as they were.
    pub(crate) fn abandon(&self, state: &mut State, failed: Failed, location: Location) -> Error {
        let error = match failed.guard {
            Some(what) => Error::NonFinite {
                what,
                node: self.first_non_finite(state),
            },
            None => failed.error,
        };
        if failed.wrote {
            state.poisoned = Some(error.to_string());
        }
        if failed.guard.is_some() {
            state.pending.grads.clear();
            self.keep_results(state);
        }
        self.give_up(state, location);
        error
    }

    /// Computes again, after a guard stopped a step, what a step leaves behind of live tensors: losses
    /// and norms, to be looked at. What there is no room for expires.
    fn keep_results(&self, state: &mut State) {
        let targets: BTreeSet<ValueId> = state.pending.kept_values().into_iter().collect();
        let request = Request {
            targets: &targets,
            effects: false,
            whole: true,
            future: None,
        };
        if self.evaluate(state, &request).is_err() {
            state.memory.take_back(&targets);
        }
    }

    /// Computes again what guards read, looking at each result. No cell was written yet.
    fn first_non_finite(&self, state: &mut State) -> String {
        let guards = state
            .pending
            .graph
            .nodes()
            .iter()
            .filter(|node| node.traits.effect == highwater_graph::Effect::Guard);
        let guarded: BTreeSet<ValueId> = guards
            .flat_map(|node| node.inputs.iter())
            .filter_map(Operand::value)
            .collect();
        let inputs = |id: &ValueId| state.pending.graph.value(*id).producer.is_none();
        let given: Vec<ValueId> = state
            .memory
            .storages
            .keys()
            .copied()
            .filter(inputs)
            .collect();
        state.memory.storages.retain(|id, _| given.contains(id));
        state.pending.progress = Progress::default();
        let unknown = "not found again".to_owned();
        let request = Request {
            targets: &guarded,
            effects: false,
            whole: true,
            future: None,
        };
        // Each by itself: what is merged hides results.
        let fuses = std::mem::replace(&mut state.planning.fuses, false);
        let chosen = self.choose(state, &guarded, &request);
        state.planning.fuses = fuses;
        let Ok(chosen) = chosen else {
            return unknown;
        };
        let Ok(ready) = self.prepare(state, chosen, false, Instant::now()) else {
            return unknown;
        };
        let machine = self.machine(state, &state.pending.graph, true);
        match execute(&machine, &ready.proven, None) {
            Err(Failed {
                error: Error::NonFinite { node, .. },
                ..
            }) => node,
            _ => unknown,
        }
    }
}
