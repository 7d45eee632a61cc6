//! Which plan an evaluation runs, and why there is none.

use crate::autograd::walk;
use crate::engine::Engine;
use crate::engine::homes::Question;
use crate::engine::request::Request;
use crate::engine::state::State;
use crate::error::describe;
use crate::problem::compile::Compiled;
use crate::problem::plan_cache::{About, Answer};
use crate::report::told::Told;
use crate::store::cells;
use crate::{Error, Result};
use highwater_graph::Location;
use highwater_graph::{CellId, Graph, Operand, ValueId};
use highwater_plan::{Families, Plan, Problem, Tier};
use std::collections::BTreeSet;
use std::sync::Arc;

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
    ///    says what to keep. What pending writes will read is kept as well. If that does not fit,
    ///    the future is given up.
    /// 2. Values that earlier plans left in the arena are used; if no plan fits around them, they
    ///    are given up, and the nodes that made them count as not run.
    pub(crate) fn choose(
        &self,
        state: &mut State,
        targets: &BTreeSet<ValueId>,
        request: &Request<'_>,
    ) -> Result<Chosen> {
        self.own_written(state)?;
        if let Some(root) = request.future {
            let (graph, gradients) = Self::extended(state, root);
            let pending = state.pending.inputs(&state.memory.storages);
            let later = gradients
                .iter()
                .filter_map(|(_, grad)| grad.value())
                .chain(pending.iter().copied());
            let wanted = targets.iter().copied().chain(later);
            let wanted: Vec<ValueId> = wanted.collect();
            let (compiled, answer) = self.pose_merged_or_not(
                state,
                &Question {
                    graph: Some(&graph),
                    targets: &wanted,
                    wanted: &pending,
                    effects: request.effects,
                    trains: request.trains(),
                },
            );
            if let Ok(Answer::Fits(plan, about)) = answer {
                return Ok(Chosen {
                    graph: Some(graph),
                    compiled,
                    plan,
                    about,
                });
            }
        }
        let none = BTreeSet::new();
        let targets_now: Vec<ValueId> = targets.iter().copied().collect();
        let (compiled, answer) = self.pose_merged_or_not(
            state,
            &Question {
                graph: None,
                targets: &targets_now,
                wanted: &none,
                effects: request.effects,
                trains: request.trains(),
            },
        );
        let refused = match answer {
            Ok(Answer::Fits(plan, about)) => {
                return Ok(Chosen {
                    graph: None,
                    compiled,
                    plan,
                    about,
                });
            }
            Ok(Answer::Refused(family)) => Ok(family),
            Err(error) => Err(error),
        };
        // What ran already binds the plans: values that are gone need not be made again only
        // because later ones are there.
        // Nor may corrected times or rates refuse what fitted before.
        // Nor may cells that are not used here.
        if !state.give_up_residents()
            && !self.clear_unused(state, &compiled, refused.as_ref().ok())?
            && !state.planning.clock.plan_by_rates()
            && !self.forget_disk_rates(state)
        {
            let family = refused?;
            self.note_refusal(state, &compiled, &family);
            return Err(self.refusal(state, &compiled, &family));
        }
        self.choose(
            state,
            targets,
            &Request {
                future: None,
                ..*request
            },
        )
    }

    /// Poses a problem, and the one without merged nodes where that with them does not fit: if it does, nodes
    /// stay by themselves from then on. A merged node wants all that it reads at once, and no search promises
    /// the least. Of two that are refused it is the one that lacks less.
    fn pose_merged_or_not(
        &self,
        state: &mut State,
        question: &Question<'_>,
    ) -> (Compiled, Result<Answer<Told>>) {
        let merged = self.pose(state, question);
        let least = |(compiled, answer): &(Compiled, Result<Answer<Told>>)| match answer {
            Ok(Answer::Refused(family)) => {
                let floor = family.floor(&compiled.problem);
                Some(self.least_budget(compiled, floor.arena_bytes))
            }
            _ => None,
        };
        if least(&merged).is_none() || !merged.0.is_merged() {
            return merged;
        }
        state.planning.fuses = false;
        let apart = self.pose(state, question);
        state.planning.fuses = least(&apart).is_some();
        if least(&apart) < least(&merged) {
            apart
        } else {
            merged
        }
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

    fn refusal(&self, state: &State, compiled: &Compiled, family: &Families) -> Error {
        let floor = family.floor(&compiled.problem);
        let (stated, tier) = self.refusing(state);
        let node = |id: highwater_plan::NodeId| compiled.nodes.get(id.index());
        let at = floor
            .node
            .and_then(node)
            .map(|&id| describe(compiled.node(&state.pending.graph, id)));
        let largest = floor.holders.iter().max_by_key(|&&(_, bytes)| bytes);
        let holder = largest.map(|&(value, bytes)| {
            let Some(value) = compiled.value(value) else {
                let cell = compiled.cell(value);
                let cell =
                    cell.map_or_else(String::new, |id| cells::name(&state.pending.graph, id));
                return format!("{cell} ({})", highwater_memory::Bytes(bytes));
            };
            let value = state.pending.graph.value(value);
            let made = value
                .producer
                .map(|(node, _)| describe(compiled.node(&state.pending.graph, node)));
            let what = made.unwrap_or_else(|| "an input".into());
            format!(
                "{} made by {what} ({})",
                value.spec,
                highwater_memory::Bytes(bytes)
            )
        });
        let tensors = self.least_budget(compiled, floor.arena_bytes) + self.beside(state, compiled);
        Error::OverBudget {
            tier,
            floor_bytes: stated.whole(tensors),
            budget_bytes: stated.budget,
            reserve_bytes: stated.process(tensors),
            host_bytes: stated.host,
            kept_bytes: self.0.store.kept_bytes(),
            full: self.full_tiers(&compiled.problem, family),
            at: at.unwrap_or_default(),
            holder: holder.unwrap_or_else(|| "scratch memory".into()),
        }
    }
}

impl Engine {
    /// The tiers that have no room left, at the floor, for the largest value that might wait there.
    fn full_tiers(&self, problem: &Problem, family: &Families) -> Vec<Tier> {
        let floor = family.floor(problem);
        let Ok(least) = family.choose(problem, floor.arena_bytes) else {
            return Vec::new();
        };
        let largest = floor.holders.iter().map(|&(_, bytes)| bytes).max();
        let largest = largest.unwrap_or(0);
        let is_full = |tier: &Tier| {
            let traffic = least.traffic(*tier);
            let taken = traffic.home_bytes + traffic.spill_bytes;
            let link = problem.tiers.link(*tier);
            link.is_some_and(|link| taken.saturating_add(largest) > link.bytes)
        };
        // Files have the room that they have.
        let is_there = |tier: &Tier| *tier == Tier::Host || self.0.tiers.spill().is_some();
        Tier::ALL
            .into_iter()
            .filter(is_there)
            .filter(is_full)
            .collect()
    }
}
