//! When the pending graph is computed: whole at `step()` and `backward()` onto pending gradients,
//! in part when a value is read.

use crate::engine::Engine;
use crate::engine::choose::Chosen;
use crate::engine::request::Request;
use crate::engine::state::State;
use crate::error::{describe, located};
use crate::problem::compiled::Compiled;
use crate::problem::plan_cache::About;
use crate::problem::proven::Proven;
use crate::problem::ran::Until;
use crate::report::steps::StepPlan;
use crate::report::told::Told;
use crate::run::execute::{Failed, execute};
use crate::run::machine::Machine;
use crate::{Error, Result};
use highwater_graph::{CellId, Graph, Location, NodeId, Operand, Source, ValueId, Version};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

/// A plan that may run.
pub(crate) struct Ready {
    /// The extended graph, if the future was taken in.
    graph: Option<Graph>,
    pub(crate) proven: Proven,
    /// Whether it ran before.
    known: bool,
    told: Arc<Told>,
    /// When it was chosen.
    when: Instant,
}

impl Engine {
    /// Computes everything that is pending: updates, gradients, and of the other live handles those
    /// that are small or marked. The graph is gone afterwards.
    pub(crate) fn evaluate_all(&self, state: &mut State, location: Location) -> Result<()> {
        state.check_unlent(location)?;
        let made = match self.ready_grads(state, location) {
            Ok(made) => made,
            Err(error) => return Err(self.abandon(state, Failed::clean(error), location)),
        };
        let targets = state.pending.targets();
        let request = Request {
            targets: &targets,
            effects: true,
            whole: true,
            future: None,
        };
        self.check_reserve(state);
        match self.evaluate(state, &request) {
            Ok(()) => {
                state.record.steps.end();
                self.finish(state, location)
            }
            Err(failed) => {
                state.drop_grads(&made);
                Err(self.abandon(state, failed, location))
            }
        }
    }

    /// Computes some values and leaves the graph pending. What a backward of `future` would want is
    /// kept where there is room.
    pub(crate) fn evaluate_some(
        &self,
        state: &mut State,
        targets: &BTreeSet<ValueId>,
        future: Option<&Operand>,
        location: Location,
    ) -> Result<()> {
        state.check_unlent(location)?;
        let request = Request {
            targets,
            effects: false,
            whole: false,
            future,
        };
        let result = self.evaluate(state, &request);
        result.map_err(|failed| self.abandon_read(state, failed, location))?;
        state.compact(future);
        Ok(())
    }

    /// Computes the gradients that are pending, before `backward()` of `next` adds to them.
    pub(crate) fn evaluate_grads(
        &self,
        state: &mut State,
        next: &Operand,
        location: Location,
    ) -> Result<Operand> {
        self.evaluate_effects(state, Some(next), location)?;
        Ok(state.compact(Some(next)).unwrap_or_else(|| next.clone()))
    }

    /// Computes the gradients that are pending and runs what is to write cells; of the values that
    /// go into them, keeps what a whole evaluation would. The rest of the graph stays pending.
    pub(crate) fn evaluate_effects(
        &self,
        state: &mut State,
        future: Option<&Operand>,
        location: Location,
    ) -> Result<()> {
        state.check_unlent(location)?;
        let made = match self.ready_grads(state, location) {
            Ok(made) => made,
            Err(error) => return Err(self.abandon(state, Failed::clean(error), location)),
        };
        let mut targets = state.pending.grad_values();
        let kept = state.pending.kept_values();
        let (graph, done) = (&state.pending.graph, &state.pending.progress.done);
        let needed = graph.reachable(&targets, |id| !done.contains(&id), |_| false);
        let is_needed = |id: &ValueId| {
            let producer = graph.value(*id).producer;
            producer.is_some_and(|(node, _)| needed[node.index()])
        };
        let overwritten = state.overwritten();
        let is_last_chance = |id: &ValueId| {
            let producer = graph.value(*id).producer;
            producer.is_some_and(|(node, _)| overwritten[node.index()])
        };
        let (now, left): (Vec<_>, Vec<_>) =
            (kept.into_iter()).partition(|id| is_needed(id) || is_last_chance(id));
        let storages = &state.memory.storages;
        targets.extend(now);
        targets.extend(state.pending.beside(&needed, left, future, storages));
        targets.extend(state.pending.remembered());
        let request = Request {
            targets: &targets,
            effects: state.pending.has_effects_left(),
            whole: false,
            future,
        };
        if let Err(failed) = self.evaluate(state, &request) {
            state.drop_grads(&made);
            return Err(self.abandon(state, failed, location));
        }
        state.pending.graph.mark_evaluated();
        state.adopt_grads()
    }

    /// Eager mode: computes all that is pending now and waits for no write, keeping every value.
    pub(crate) fn evaluate_now(&self, state: &mut State, location: Location) -> Result<()> {
        state.check_unlent(location)?;
        let awaiting = state.pending.awaiting(&state.memory.storages);
        let done = &state.pending.progress.done;
        let pending = |id: &NodeId| !done.contains(id) && !awaiting[id.index()];
        let nodes = NodeId::below(state.pending.graph.nodes().len()).filter(pending);
        let targets = nodes
            .flat_map(|id| state.pending.graph.node(id).outputs.to_vec())
            .collect();
        let request = Request {
            targets: &targets,
            effects: false,
            whole: false,
            future: None,
        };
        let result = self.evaluate(state, &request);
        result.map_err(|failed| self.abandon_read(state, failed, location))
    }

    pub(crate) fn evaluate(&self, state: &mut State, request: &Request<'_>) -> Result<(), Failed> {
        if let Some(why) = &state.poisoned {
            return Err(Failed::clean(Error::Poisoned(why.clone())));
        }
        let there = |id: &ValueId| state.memory.storages.contains_key(id);
        let missing: BTreeSet<ValueId> = request
            .targets
            .iter()
            .copied()
            .filter(|id| !there(id))
            .collect();
        if missing.is_empty() && !request.effects {
            return Ok(());
        }
        let mut runs = false;
        let all = || self.evaluate_missing(state, request, &missing, &mut runs);
        match catch_unwind(AssertUnwindSafe(all)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failed)) => {
                if !failed.wrote {
                    state.memory.take_back(&missing);
                }
                Err(failed)
            }
            // In the code of an operation, or of who looks at plans; that of kernels is an error.
            Err(panic) => {
                state.memory.take_back(&missing);
                if runs {
                    state.poisoned = Some("a panic stopped a step halfway".to_owned());
                }
                resume_unwind(panic)
            }
        }
    }

    /// Says by `runs` when cells may be written from then on.
    fn evaluate_missing(
        &self,
        state: &mut State,
        request: &Request<'_>,
        missing: &BTreeSet<ValueId>,
        runs: &mut bool,
    ) -> Result<(), Failed> {
        // The plan will use their places.
        state.recordings.give_up_residents();
        self.give_storage(state, missing).map_err(Failed::clean)?;
        let started = Instant::now();
        let ready = match self.ready(state, missing, request) {
            // What was in the way has been given up: that is another problem.
            Err(error) if error.is_full() => self.ready(state, missing, request),
            other => other,
        };
        let Ready {
            graph,
            proven,
            known,
            told,
            when,
        } = ready.map_err(Failed::clean)?;
        let (compiled, plan) = (proven.compiled(), proven.plan());
        let times = [started, when];
        let until = (!request.whole).then(|| Until::of(compiled, missing));
        let graph = graph.as_ref().unwrap_or(&state.pending.graph);
        *runs = request.effects;
        let ran = execute(&self.machine(state, graph, false), &proven, until)?;
        let around = self.around(state, graph, compiled);
        let step = StepPlan::new(told, Arc::clone(plan), &around, Some(&ran));
        state.record.steps.add(step);
        let report = self.report(state, (plan, compiled), &ran, times);
        state.record.note(report);
        state.pending.skip = ran.skipped;
        // The first run of a plan touches pages for the first time.
        if known && !self.0.dry {
            state.planning.clock.note(ran.runs(compiled));
            // What stops early moves less than its plan.
            if request.whole {
                self.correct_disk(state, compiled, plan, &ran);
            }
        }
        // Of a graph that was computed whole nothing is left.
        if !request.whole {
            let ran_nodes = ran.nodes.iter().map(|&node| compiled.nodes[node.index()]);
            let present = ran.present();
            let present = present.filter_map(|(id, offset)| Some((compiled.value(id)?, offset)));
            let (pending, memory) = (&mut state.pending, &state.memory);
            pending.advance(ran_nodes, present, &memory.storages);
            self.0.store.keep_below(state.residents_end());
        }
        Ok(())
    }

    /// Chooses a plan and sees to all that it needs.
    fn ready(
        &self,
        state: &mut State,
        missing: &BTreeSet<ValueId>,
        request: &Request<'_>,
    ) -> Result<Ready> {
        let chosen = self.choose(state, missing, request)?;
        let chosen = self.settled(state, chosen, |engine, state| {
            engine.choose(state, missing, request)
        })?;
        let when = Instant::now();
        self.prepare(state, chosen, request.trains(), when)
    }

    /// All that a plan needs before it runs.
    pub(crate) fn prepare(
        &self,
        state: &mut State,
        chosen: Chosen,
        trains: bool,
        when: Instant,
    ) -> Result<Ready> {
        check_fresh(chosen.graph(&state.pending.graph), &chosen.compiled)?;
        let Chosen {
            graph,
            compiled,
            plan,
            about,
        } = chosen;
        let budget = self.plan_budget(state, &compiled);
        let proven = Proven::of((compiled, plan), budget, &about, self.0.on_plan)?;
        let (compiled, plan) = (proven.compiled(), proven.plan());
        self.bring_home(state, compiled, plan, trains)?;
        let known = matches!(about, About::Told(_));
        let told = match about {
            About::Told(told) => told,
            About::New(family) => {
                let graph = graph.as_ref().unwrap_or(&state.pending.graph);
                let told = self.tell(&self.around(state, graph, compiled), &family, plan);
                state.planning.cache.note(plan, &told);
                drop(family);
                highwater_memory::heap::release_unused();
                told
            }
        };
        self.0.store.prepare_plan(plan.arena_bytes)?;
        Ok(Ready {
            graph,
            proven,
            known,
            told,
            when,
        })
    }

    pub(crate) fn machine<'a>(
        &'a self,
        state: &'a State,
        graph: &'a Graph,
        check: bool,
    ) -> Machine<'a> {
        Machine {
            graph,
            system: &*self.0.system,
            store: &self.0.store,
            kernels: &self.0.kernels,
            pool: &self.0.pool,
            storages: &state.memory.storages,
            cells: &state.memory.cells,
            check_finite: check,
            skip: state.pending.skip,
            dry: self.0.dry,
        }
    }
}

/// That no node of the problem reads a version of a cell that is gone, or that it does not make.
fn check_fresh(graph: &Graph, compiled: &Compiled) -> Result<()> {
    // Seldom asked: what steps read is in memory.
    let made = LazyCell::new(|| -> BTreeSet<(CellId, Version)> {
        let nodes = compiled.nodes.iter().map(|&id| graph.node(id));
        let writes = nodes.flat_map(|node| &node.writes);
        writes.map(|&(id, before)| (id, before.next())).collect()
    });
    let is_made = |input: &Operand| match input.source {
        Source::Cell(id, version) => {
            let is_there = graph.cell(id).is_some() && graph.evaluated(id) == version;
            is_there || made.contains(&(id, version))
        }
        Source::Value(_) => true,
    };
    for &id in &compiled.nodes {
        let node = compiled.node(graph, id);
        let reads = node.inputs.iter().filter(|input| match input.source {
            Source::Cell(cell, _) => !node.writes.iter().any(|&(written, _)| written == cell),
            Source::Value(_) => false,
        });
        for input in reads {
            let fresh = graph.check_fresh(node.op.name(), input, &node.site);
            fresh.map_err(|error| located(error, &node.site))?;
            if !is_made(input) {
                let message = format!("{} reads what is not written yet", describe(node));
                return Err(Error::Internal(message));
            }
        }
    }
    Ok(())
}
