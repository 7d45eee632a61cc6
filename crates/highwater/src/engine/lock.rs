//! The engine's lock: who holds it, who must not wait for it, and what a panic under it leaves.

use crate::engine::Engine;
use crate::engine::state::State;
use crate::pending::recording::Recording;
use highwater_graph::{CellId, Location};
use highwater_ops::Engaged;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError};

/// What of an engine changes, for as long as this thread has it for itself.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    _engaged: Engaged,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Engine {
    /// Locks the state. What was pending when a thread panicked under the lock is given up.
    ///
    /// # Panics
    /// On a thread that works under an engine's lock already: in the code of an operation, in a kernel, in
    /// what [`Builder::on_plan`](crate::Builder::on_plan) calls. It would wait for itself, or for who waits
    /// for it.
    #[track_caller]
    pub(crate) fn lock(&self) -> Locked<'_> {
        assert!(
            !Engaged::is(),
            "an engine is used inside the code of an operation, of a kernel or of on_plan(): these run while \
             their engine waits for them; use it before or after the evaluation"
        );
        let lock = &self.0.state;
        let mut state = Locked {
            state: lock.lock().unwrap_or_else(|poisoned| {
                lock.clear_poison();
                let mut state = poisoned.into_inner();
                self.give_up(&mut state, Location::caller());
                state
            }),
            _engaged: Engaged::enter(),
        };
        state.enter(
            &Recording::current(),
            &self.0.dropped_cells,
            Location::caller(),
        );
        // A graph that nobody can want any more goes, with all that it holds.
        let are_grads_there = !state.memory.grads.is_empty();
        if state.pending.is_forsaken(are_grads_there, &BTreeSet::new()) {
            state.end(Location::caller());
            self.0.store.keep_below(state.residents_end());
        }
        if state.pending.graph.nodes().is_empty() {
            self.take_up_dropped(&mut state);
        }
        state
    }

    /// Gives the lock up until somebody has given back the bytes of a cell.
    pub(crate) fn wait<'e>(&'e self, locked: Locked<'e>) -> Locked<'e> {
        let Locked {
            state,
            _engaged: engaged,
        } = locked;
        drop(engaged);
        let state = self.0.given_back.wait(state);
        let mut state = Locked {
            // What a panic left pending is seen to by whoever locks next.
            state: state.unwrap_or_else(PoisonError::into_inner),
            _engaged: Engaged::enter(),
        };
        state.enter(
            &Recording::current(),
            &self.0.dropped_cells,
            Location::caller(),
        );
        state
    }

    /// Forgets cells whose last handle was dropped and that nothing reads or writes any more.
    pub(crate) fn take_up_dropped(&self, state: &mut State) {
        let dropped = self.0.dropped_cells.take();
        if dropped.is_empty() {
            return;
        }
        let mut used = state.pending.used_cells();
        used.extend(state.recordings.used_cells());
        let is_used = |id: &CellId| {
            let grad = state.memory.grads.get(id);
            used.contains(id) || grad.is_some_and(|grad| used.contains(grad))
        };
        let (used, unused): (Vec<_>, Vec<_>) = dropped.into_iter().partition(is_used);
        for id in used {
            self.drop_cell(id);
        }
        for &id in &unused {
            state.pending.hooks.forget_cell(id);
        }
        state.forget(&unused);
    }

    /// Ends the generation without its results: handles of values that are not there expire.
    pub(crate) fn give_up(&self, state: &mut State, location: Location) {
        state.pending.grads.clear();
        state.record.steps.give_up();
        state.end(location);
        self.0.store.keep_below(state.residents_end());
    }
}
