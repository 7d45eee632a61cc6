//! What is said about a plan when it is made.

use super::decisions::{self, Decision};
use super::held::Held;
use super::price::{Price, prices};
use super::scene::{Beside, Moment, Scene};
use crate::problem::compiled::{Compiled, Rounding, whole_pages};
use crate::store::limits::Stated;
use crate::store::memory::Memory;
use highwater_graph::{Graph, Phase};
use highwater_plan::{Families, Home, Plan, Problem, holders, running};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// What a plan is of, and what is beside it.
pub(crate) struct Around<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) compiled: &'a Compiled,
    pub(crate) memory: &'a Memory,
    /// What state takes without the cells that the plan decides about.
    pub(crate) state_bytes: u64,
    pub(crate) stated: Stated,
}

/// What is said about a plan when it is made; kept as long as the plan.
#[derive(Debug)]
pub(crate) struct Told {
    problem: Arc<Problem>,
    scene: Scene,
    stated: Stated,
    state_bytes: u64,
    rounding: Rounding,
    /// Prices of the plans of its family, in bytes of the arena and of the cells that they decided
    /// about, once they were asked for.
    prices: OnceLock<Vec<Price>>,
    /// The least that would do, once it is known.
    floor: OnceLock<Point>,
    pub(super) peak: Point,
    pub(super) saved_bytes: u64,
    pub(super) decisions: Vec<Decision>,
}

/// A moment of a plan.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) arena_bytes: u64,
    pub(super) at: String,
    pub(super) held: Held,
}

impl Told {
    /// All there is to say about a new plan and its family, as far as nothing has to be looked for.
    pub(crate) fn new(
        around: &Around<'_>,
        family: &Families,
        plan: &Plan,
        rounding: Rounding,
    ) -> Self {
        let (graph, compiled) = (around.graph, around.compiled);
        let scene = Scene::new(around.memory, graph, compiled);
        let at_peak = holders(&compiled.problem, plan, plan.peak_instruction as usize);
        let peak = Moment {
            arena_bytes: whole_pages(plan.memory_bytes()) - plan.home_bytes,
            home_bytes: plan.home_bytes,
            node: running(plan, plan.peak_instruction),
            values: &at_peak.values,
            scratch_bytes: at_peak.scratch_bytes,
        };
        let told = Self {
            problem: Arc::clone(&compiled.problem),
            peak: Point::new(&scene, &peak, (around.state_bytes, &around.stated)),
            scene,
            stated: around.stated,
            state_bytes: around.state_bytes,
            rounding,
            prices: OnceLock::new(),
            floor: OnceLock::new(),
            saved_bytes: saved_bytes(graph, compiled),
            decisions: decisions::decisions(graph, compiled, plan),
        };
        if family.is_searched() {
            told.look_for_floor(family);
        }
        told
    }

    /// Looks for the least that would do, and at so many prices, in the family of the problem; once.
    /// Answers whether there is one.
    pub(super) fn look(
        &self,
        count: usize,
        family: impl FnOnce(&Arc<Problem>) -> Option<Arc<Families>>,
    ) -> bool {
        if self.floor.get().is_some() && self.prices.get().is_some() {
            return true;
        }
        let family = family(&self.problem);
        if let Some(family) = &family {
            self.look_for_floor(family);
            self.prices
                .get_or_init(|| prices(&self.problem, family, count));
        }
        family.is_some()
    }

    fn look_for_floor(&self, families: &Families) {
        self.floor.get_or_init(|| {
            let floor = families.floor(&self.problem);
            let moment = Moment {
                arena_bytes: self.rounding.least_budget(floor.arena_bytes),
                home_bytes: 0,
                node: floor.node,
                values: &floor.holders,
                scratch_bytes: floor.scratch_bytes,
            };
            Point::new(&self.scene, &moment, (self.state_bytes, &self.stated))
        });
    }

    /// The least that would do, if that is known.
    pub(super) fn floor(&self) -> Option<&Point> {
        self.floor.get()
    }

    pub(super) fn prices(&self) -> &[Price] {
        self.prices.get().map_or(&[], Vec::as_slice)
    }
}

impl Point {
    /// A moment of a plan, beside so many bytes of state.
    fn new(scene: &Scene, moment: &Moment<'_>, (state, stated): (u64, &Stated)) -> Self {
        let beside = Beside {
            state,
            reserve: stated.process(moment.arena_bytes + moment.home_bytes + state),
            host: stated.host,
        };
        Self {
            arena_bytes: moment.arena_bytes,
            at: scene.describe(moment.node),
            held: scene.held(moment, &beside),
        }
    }
}

/// Bytes of values in the arena that the forward part makes and the backward part reads.
fn saved_bytes(graph: &Graph, compiled: &Compiled) -> u64 {
    let phase = |&id: &highwater_graph::NodeId| graph.node(id).site.phase;
    let mut saved = BTreeSet::new();
    for (id, posed) in compiled.nodes.iter().zip(&compiled.problem.nodes) {
        if phase(id) != Phase::Forward {
            saved.extend(posed.inputs.iter().copied());
        }
    }
    let made = compiled.nodes.iter().zip(&compiled.problem.nodes);
    let made = made.filter(|(id, _)| phase(id) == Phase::Forward);
    // What may be left out is made ahead, for the backward part.
    let values = made.flat_map(|(_, posed)| {
        let outputs = posed.outputs.iter().enumerate();
        outputs.filter_map(|(o, value)| posed.saved(o).is_none().then_some(value))
    });
    values
        .filter(|&value| saved.contains(value))
        .map(|&value| &compiled.problem.values[value.index()])
        .filter(|value| value.home != Home::External)
        .map(|value| value.bytes)
        .sum()
}
