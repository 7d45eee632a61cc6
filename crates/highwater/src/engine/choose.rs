//! Which plan an evaluation runs. Why there is none: `refusal.rs`.

use crate::Result;
use crate::autograd::walk;
use crate::engine::Engine;
use crate::engine::posing::Question;
use crate::engine::request::Request;
use crate::engine::state::State;
use crate::problem::compiled::Compiled;
use crate::problem::plan_cache::{About, Answer};
use crate::report::told::Told;
use highwater_graph::{CellId, Graph, Location, Operand, ValueId};
use highwater_plan::{Families, Plan};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A problem with merged nodes, and the same without where that was tried.
type BothWays = (
    (Compiled, Result<Answer<Told>>),
    Option<(Compiled, Result<Answer<Told>>)>,
);

/// A plan, and what it is of.
pub(crate) struct Chosen {
    /// The extended graph, if the future was taken in.
    pub(crate) graph: Option<Graph>,
    pub(crate) compiled: Compiled,
    pub(crate) plan: Arc<Plan>,
    pub(crate) about: About<Told>,
}

impl Chosen {
    /// The graph that the plan is of; `pending` is the one that the engine holds.
    pub(crate) fn graph<'a>(&'a self, pending: &'a Graph) -> &'a Graph {
        self.graph.as_ref().unwrap_or(pending)
    }
}

impl Engine {
    /// Poses the problem and takes the fastest plan that fits.
    ///
    /// 1. With a future, the graph is extended by the backward that is to come, on a copy: its plan
    ///    says what to keep. What pending writes will read is kept as well.
    /// 2. If that does not fit, the future is given up, and the graph is planned as it is.
    /// 3. If that does not fit either, one thing after the other that is in the way is given up
    ///    ([`Engine::give_way`]), until a plan fits or nothing is left.
    pub(crate) fn choose(
        &self,
        state: &mut State,
        targets: &BTreeSet<ValueId>,
        request: &Request<'_>,
    ) -> Result<Chosen> {
        self.own_written(state)?;
        if let Some(root) = request.future
            && let Some(chosen) = self.choose_for_future(state, targets, request, root)
        {
            return Ok(chosen);
        }
        let targets: Vec<ValueId> = targets.iter().copied().collect();
        let question = Question {
            graph: None,
            targets: &targets,
            wanted: &BTreeSet::new(),
            effects: request.effects,
            trains: request.trains(),
        };
        loop {
            let (compiled, answer) = self.pose_merged_or_not(state, &question);
            let refused = match answer {
                Ok(Answer::Fits(plan, about)) => {
                    return Ok(Chosen {
                        graph: None,
                        compiled,
                        plan,
                        about,
                    });
                }
                Ok(Answer::Refused(families)) => Ok(families),
                Err(error) => Err(error),
            };
            if !self.give_way(state, &compiled, refused.as_ref().ok())? {
                let families = refused?;
                self.note_refusal(state, &compiled, &families);
                return Err(self.refusal(state, &compiled, &families));
            }
            self.own_written(state)?;
        }
    }

    /// The plan of a graph with the backward of `root` that is to come, if one fits.
    fn choose_for_future(
        &self,
        state: &mut State,
        targets: &BTreeSet<ValueId>,
        request: &Request<'_>,
        root: &Operand,
    ) -> Option<Chosen> {
        let (graph, gradients) = Self::extended(state, root);
        let pending = state.pending.inputs(&state.memory.storages);
        let gradients = gradients.iter().filter_map(|(_, grad)| grad.value());
        let later = gradients.chain(pending.iter().copied());
        let targets: Vec<ValueId> = targets.iter().copied().chain(later).collect();
        let question = Question {
            graph: Some(&graph),
            targets: &targets,
            wanted: &pending,
            effects: request.effects,
            trains: request.trains(),
        };
        // Of two that are refused neither will do, and what they lack is not asked for: that may be a search.
        let (merged, apart) = self.pose_both_ways(state, &question);
        let (compiled, answer) = apart.unwrap_or(merged);
        let Ok(Answer::Fits(plan, about)) = answer else {
            return None;
        };
        Some(Chosen {
            graph: Some(graph),
            compiled,
            plan,
            about,
        })
    }

    /// Gives up the first of these that is there, and returns false if none is:
    ///
    /// 1. Values that earlier plans left in the arena. The nodes that made them count as not run. What
    ///    ran already must not refuse what a fresh start would allow.
    /// 2. The place in memory of a cell that the problem does not use.
    /// 3. Corrected times of kernels and rates of a disk, which may have ruled out what fitted before.
    fn give_way(
        &self,
        state: &mut State,
        compiled: &Compiled,
        refused: Option<&Arc<Families>>,
    ) -> Result<bool> {
        if state.give_up_residents() || self.clear_unused(state, compiled, refused)? {
            return Ok(true);
        }
        Ok(state.planning.clock.plan_by_rates() || self.forget_disk_rates(state))
    }

    /// Poses a problem, and the one without merged nodes where that with them does not fit. Of two that are
    /// refused it is the one that lacks less.
    fn pose_merged_or_not(
        &self,
        state: &mut State,
        question: &Question<'_>,
    ) -> (Compiled, Result<Answer<Told>>) {
        let least = |(compiled, answer): &(Compiled, Result<Answer<Told>>)| match answer {
            Ok(Answer::Refused(family)) => {
                let floor = family.floor(&compiled.problem);
                Some(self.least_budget(compiled, floor.arena_bytes))
            }
            _ => None,
        };
        match self.pose_both_ways(state, question) {
            (merged, None) => merged,
            (merged, Some(apart)) => match least(&apart) {
                Some(bytes) if least(&merged).is_some_and(|merged| bytes >= merged) => merged,
                _ => apart,
            },
        }
    }

    /// Poses a problem, and the one without merged nodes if that with them is refused: where it fits, nodes stay
    /// by themselves from then on. A merged node wants all that it reads at once, and no search promises the
    /// least.
    fn pose_both_ways(&self, state: &mut State, question: &Question<'_>) -> BothWays {
        let is_refused = |answer: &Result<Answer<Told>>| matches!(answer, Ok(Answer::Refused(_)));
        let merged = self.pose(state, question);
        if !is_refused(&merged.1) || !merged.0.is_merged() {
            return (merged, None);
        }
        state.planning.fuses = false;
        let apart = self.pose(state, question);
        state.planning.fuses = is_refused(&apart.1);
        (merged, Some(apart))
    }

    /// Moves a cell out of memory that a refused problem does not use. Answers whether there was one.
    fn clear_unused(
        &self,
        state: &mut State,
        compiled: &Compiled,
        refused: Option<&Arc<Families>>,
    ) -> Result<bool> {
        let Some(family) = refused else {
            return Ok(false);
        };
        let least = self.least_budget(compiled, family.floor(&compiled.problem).arena_bytes);
        let lacking = least.saturating_sub(self.plan_budget(state, compiled));
        let used: BTreeSet<CellId> = compiled.cells().collect();
        self.make_room(state, lacking, |id| used.contains(&id))
    }

    /// The graph with the backward of `root` that is to come, as far as there can be one.
    fn extended(state: &State, root: &Operand) -> (Graph, walk::Gradients) {
        if root.requires_grad {
            let mut graph = state.pending.graph.clone();
            if let Ok(gradients) =
                walk::backward(&mut graph, &(root.clone(), None), Location::caller())
            {
                return (graph, gradients);
            }
        }
        (state.pending.graph.clone(), walk::Gradients::new())
    }
}
