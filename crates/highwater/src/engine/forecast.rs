//! What an engine says of its steps: before they run, and after.

use crate::engine::Engine;
use crate::engine::state::State;
use crate::problem::compiled::Compiled;
use crate::problem::ran::Ran;
use crate::report::StepReport;
use crate::report::forecast::{Forecast, forecast};
use crate::report::steps::StepPlan;
use crate::report::told::{Around, Told};
use highwater_graph::Graph;
use highwater_plan::{Families, Plan, Problem};
use std::sync::Arc;
use std::time::Instant;

impl Engine {
    /// What the newest whole step takes, all its plans together, and what other budgets would cost.
    /// Where a step was refused: as far as it was planned. Looking for the least budget and at others
    /// takes time, the first time after a new plan.
    pub fn forecast(&self) -> Option<Forecast> {
        let state = &mut *self.lock();
        let (policy, count) = (self.0.policy, self.0.prices);
        let cache = &mut state.planning.cache;
        let family = |problem: &Arc<Problem>| {
            let release = || self.0.store.release_idle();
            cache.family(problem, policy, release).ok()
        };
        forecast(&state.record.steps, count, family)
    }

    /// Whether the newest whole step ran the very plans of the one before, at most 31 of them. Then it found
    /// all cells where it left them, and the same step will run them again, for as long as nothing else
    /// moves cells and no predictions are corrected: what [`Engine::forecast`] tells is settled.
    pub fn is_settled(&self) -> bool {
        self.lock().record.steps.repeat()
    }

    /// What is beside a plan of a problem.
    pub(crate) fn around<'a>(
        &self,
        state: &'a State,
        graph: &'a Graph,
        compiled: &'a Compiled,
    ) -> Around<'a> {
        Around {
            graph,
            compiled,
            memory: &state.memory,
            state_bytes: self.beside(state, compiled),
            stated: self.stated(state),
        }
    }

    /// Says all there is to say about a new plan and its family.
    pub(crate) fn tell(&self, around: &Around<'_>, family: &Families, plan: &Plan) -> Arc<Told> {
        let rounding = self.rounding(around.compiled);
        Arc::new(Told::new(around, family, plan, rounding))
    }

    /// Notes that a step ends here for want of memory: what it would take at least.
    pub(crate) fn note_refusal(&self, state: &mut State, compiled: &Compiled, family: &Families) {
        let Ok(least) = family.choose(
            &compiled.problem,
            family.floor(&compiled.problem).arena_bytes,
        ) else {
            return;
        };
        let around = self.around(state, &state.pending.graph, compiled);
        let told = self.tell(&around, family, &least);
        let plan = StepPlan::new(told, Arc::new(least), &around, None);
        state.record.steps.add(plan);
        state.record.steps.end();
    }

    /// What an evaluation planned and what it took. `started` and `chosen` are when it was asked for
    /// and when there was a plan.
    pub(crate) fn report(
        &self,
        state: &State,
        (plan, compiled): (&Plan, &Compiled),
        ran: &Ran,
        [started, chosen]: [Instant; 2],
    ) -> StepReport {
        let host_bytes = self.tiers().host.map_or(0, |host| host.bytes);
        let state_bytes = self.0.store.state_bytes();
        let reserve_bytes = state.memory.reserved.bytes();
        let all = plan.arena_bytes + state_bytes + host_bytes + reserve_bytes;
        let clock = &state.planning.clock;
        let runs = ran.runs(compiled);
        let predicted: f64 = runs.map(|(work, _)| clock.predicted(work)).sum();
        StepReport {
            planned_arena_bytes: plan.arena_bytes,
            peak_arena_bytes: ran.peak_arena_bytes,
            state_bytes,
            reserve_bytes,
            host_bytes,
            planned_process_bytes: self.stated(state).with_tables(all),
            predicted_seconds: predicted + ran.predicted_wait(compiled, plan),
            seconds: started.elapsed().as_secs_f64(),
            compile_seconds: compiled.seconds,
            choose_seconds: chosen.duration_since(started).as_secs_f64(),
            node_seconds: ran.seconds.iter().sum(),
            recomputed_nodes: plan.recomputed_nodes,
            recompute_seconds: ran.recompute_seconds,
            nodes: ran.nodes.len() as u32,
            skipped: ran.skipped,
            io: ran.io,
            host_io: ran.host_io,
        }
    }
}
