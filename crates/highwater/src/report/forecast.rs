//! What a step will take, before it runs: who holds the bytes at the peak, what each budget costs.
//!
//! A step is one plan, or several: where gradients accumulate, where a value is read before the step
//! ends. A forecast is of the whole path: the highest peak, the highest floor, seconds together.

use super::decisions::{self, Decision};
use super::held::{Beside, Held, Moment, held};
use crate::engine::Engine;
use crate::engine::state::State;
use crate::problem::compile::Compiled;
use crate::problem::plan_cache::PlanCache;
use crate::run::execute::{Ran, describe};
use crate::store::limits::Stated;
use highwater_graph::{Graph, Phase};
use highwater_plan::{
    Action, Families, Home, NodeId, Plan, Policy, Problem, Tier, holders, running,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// A step as planned. All bytes are of the whole process: plan, state, reserve, and all of the host
/// memory that there is room for, where they are not said to be of the arena or of a tier alone. Where
/// only tensors are bounded, they are of the memory that kernels work in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Whether it runs inside the budget.
    pub fits: bool,
    /// The budget.
    pub budget_bytes: u64,
    /// The least budget that works, as far as the step was planned.
    pub floor_bytes: u64,
    /// The operation that sets it: name, module, source line.
    pub floor_at: String,
    /// Who holds the bytes there.
    pub floor_held: Held,
    /// What the chosen plans take at most; of the least plan, if none fits.
    pub peak_bytes: u64,
    /// Where the peak is: operation, module, source line.
    pub peak_at: String,
    /// Who holds the bytes there.
    pub peak_held: Held,
    /// Predicted seconds of a step.
    pub seconds_per_step: f64,
    /// Nodes that run again.
    pub recomputed_nodes: u32,
    /// Predicted seconds of those.
    pub recompute_seconds: f64,
    /// Bytes that a step reads from disk.
    #[serde(default)]
    pub bytes_read: u64,
    /// Bytes that a step writes to disk.
    #[serde(default)]
    pub bytes_written: u64,
    /// Bytes of the disk that its plans take: for cells, and for values while they run.
    #[serde(default)]
    pub disk_bytes: u64,
    /// Bytes that a step copies from host memory, where that is apart.
    #[serde(default)]
    pub host_bytes_read: u64,
    /// Bytes that a step copies to host memory.
    #[serde(default)]
    pub host_bytes_written: u64,
    /// Bytes of host memory that its plans take: for cells, and for values while they run.
    #[serde(default)]
    pub host_bytes: u64,
    /// Height of the arena of the plan with the highest peak.
    pub arena_bytes: u64,
    /// Parameters, moments, inputs, kept values.
    pub state_bytes: u64,
    /// Code, heap, stacks, libraries' buffers.
    pub reserve_bytes: u64,
    /// What the forward part makes and the backward part reads: what a run that recomputes nothing
    /// holds between the two, inputs and gradients that are made ahead not counted.
    pub saved_bytes: u64,
    /// Every budget's price, fastest first.
    pub curve: Vec<Price>,
    /// How many plans the step is made of.
    pub plans: u32,
    /// What the plan with the highest peak decided.
    pub decisions: Vec<Decision>,
    /// Its instruction list.
    pub plan: Plan,
}

/// What a step costs from some budget on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Bytes of the process.
    pub bytes: u64,
    /// Predicted seconds of a step.
    pub seconds_per_step: f64,
    /// Nodes that run again.
    pub recomputed_nodes: u32,
    /// Predicted seconds of those.
    pub recompute_seconds: f64,
    /// Bytes that a step reads from disk.
    #[serde(default)]
    pub bytes_read: u64,
    /// Bytes that a step writes to disk.
    #[serde(default)]
    pub bytes_written: u64,
    /// Bytes that a step copies from host memory, where that is apart.
    #[serde(default)]
    pub host_bytes_read: u64,
    /// Bytes that a step copies to host memory.
    #[serde(default)]
    pub host_bytes_written: u64,
}

/// What is said about a plan when it is made; kept as long as the plan.
#[derive(Debug)]
pub(crate) struct Told {
    problem: Arc<Problem>,
    /// Prices of the plans of its family, in bytes of the arena and of the cells that they decided
    /// about, once they were asked for.
    prices: OnceLock<Vec<Price>>,
    floor: Point,
    peak: Point,
    saved_bytes: u64,
    decisions: Vec<Decision>,
}

#[derive(Debug)]
struct Point {
    arena_bytes: u64,
    at: String,
    held: Held,
}

/// One plan of a step.
#[derive(Debug)]
pub(crate) struct Part {
    told: Arc<Told>,
    plan: Arc<Plan>,
    fits: bool,
    /// Without the cells that the plan decided about.
    state_bytes: u64,
    stated: Stated,
    /// What runs of the plan before the next one takes over.
    ran: Price,
}

/// The plans of the step under way, and of the last one that ended.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    now: Vec<Part>,
    last: Vec<Part>,
}

/// Plans that a step under way is remembered by. Only a program that reads on and on without ever
/// taking a step has more.
const PARTS: usize = 32;

impl Steps {
    /// Adds a plan to the step under way.
    pub(crate) fn add(&mut self, part: Part) {
        if self.now.len() == PARTS {
            self.now.remove(0);
        }
        self.now.push(part);
    }

    /// Ends the step.
    pub(crate) fn end(&mut self) {
        self.last = std::mem::take(&mut self.now);
    }

    /// Forgets the step under way.
    pub(crate) fn give_up(&mut self) {
        self.now.clear();
    }

    /// The last whole step; what there is of one, if none ended yet. `prices` answers what a problem
    /// costs.
    fn forecast(&self, mut prices: impl FnMut(&Arc<Problem>) -> Vec<Price>) -> Option<Forecast> {
        let parts = if self.last.is_empty() {
            &self.now
        } else {
            &self.last
        };
        for part in parts {
            let told = &part.told;
            told.prices.get_or_init(|| prices(&told.problem));
        }
        forecast(parts)
    }
}

impl Told {
    fn prices(&self) -> &[Price] {
        self.prices.get().map_or(&[], Vec::as_slice)
    }
}

impl Part {
    /// What all takes beside so many bytes of the plan.
    fn whole(&self, bytes: u64) -> u64 {
        self.stated.whole(bytes + self.state_bytes)
    }

    fn floor_bytes(&self) -> u64 {
        self.whole(self.told.floor.arena_bytes)
    }

    fn peak_bytes(&self) -> u64 {
        self.whole(self.plan.memory_bytes())
    }

    /// How much of the plan's time runs.
    fn share(&self) -> f64 {
        if self.plan.seconds > 0.0 {
            self.ran.seconds_per_step / self.plan.seconds
        } else {
            1.0
        }
    }

    /// The price of the fastest plan that fits; of the least, if none does.
    fn price(&self, budget_bytes: u64) -> Option<Price> {
        let fits = |price: &&Price| self.whole(price.bytes) <= budget_bytes;
        let prices = self.told.prices();
        prices.iter().find(fits).or(prices.last()).copied()
    }
}

/// Brings the plans of a step together.
fn forecast(parts: &[Part]) -> Option<Forecast> {
    let first_of = |key: fn(&Part) -> u64| {
        let best = parts.iter().map(key).max()?;
        parts.iter().find(|part| key(part) == best)
    };
    let (floor, peak) = (first_of(Part::floor_bytes)?, first_of(Part::peak_bytes)?);
    let floor_bytes = floor.floor_bytes();
    let ran = || parts.iter().map(|part| part.ran);
    Some(Forecast {
        fits: parts.iter().all(|part| part.fits),
        budget_bytes: peak.stated.budget,
        floor_bytes,
        floor_at: floor.told.floor.at.clone(),
        floor_held: floor.told.floor.held.clone(),
        peak_bytes: peak.peak_bytes(),
        peak_at: peak.told.peak.at.clone(),
        peak_held: peak.told.peak.held.clone(),
        seconds_per_step: ran().map(|ran| ran.seconds_per_step).sum(),
        recomputed_nodes: ran().map(|ran| ran.recomputed_nodes).sum(),
        recompute_seconds: ran().map(|ran| ran.recompute_seconds).sum(),
        bytes_read: ran().map(|ran| ran.bytes_read).sum(),
        bytes_written: ran().map(|ran| ran.bytes_written).sum(),
        disk_bytes: most_on(parts, Tier::Disk),
        host_bytes_read: ran().map(|ran| ran.host_bytes_read).sum(),
        host_bytes_written: ran().map(|ran| ran.host_bytes_written).sum(),
        host_bytes: most_on(parts, Tier::Host),
        arena_bytes: peak.plan.arena_bytes,
        state_bytes: peak.state_bytes + peak.plan.home_bytes,
        reserve_bytes: peak
            .stated
            .process(peak.plan.memory_bytes() + peak.state_bytes),
        saved_bytes: parts
            .iter()
            .map(|part| part.told.saved_bytes)
            .max()
            .unwrap_or(0),
        curve: curve(parts, floor_bytes),
        plans: parts.len() as u32,
        decisions: peak.told.decisions.clone(),
        plan: Plan::clone(&peak.plan),
    })
}

/// The most that plans take on a tier.
fn most_on(parts: &[Part], tier: Tier) -> u64 {
    let taken = parts.iter().map(|part| {
        let traffic = part.plan.traffic(tier);
        traffic.home_bytes + traffic.spill_bytes
    });
    taken.max().unwrap_or(0)
}

/// What the plans cost together, for each budget at which one of them becomes faster.
fn curve(parts: &[Part], floor_bytes: u64) -> Vec<Price> {
    let prices = |part: &Part| -> Vec<u64> {
        let prices = part.told.prices().iter();
        prices.map(|price| part.whole(price.bytes)).collect()
    };
    let mut budgets: Vec<u64> = parts.iter().flat_map(prices).collect();
    budgets.retain(|&bytes| bytes >= floor_bytes);
    budgets.sort_unstable();
    budgets.dedup();
    let price = |&bytes: &u64| {
        let mut sum = (0.0, 0.0, 0.0);
        let mut moved = [0.0; 4];
        for part in parts {
            let (price, share) = (part.price(bytes)?, part.share());
            sum.0 += share * price.seconds_per_step;
            sum.1 += share * price.recompute_seconds;
            sum.2 += share * f64::from(price.recomputed_nodes);
            for (sum, bytes) in moved.iter_mut().zip([
                price.bytes_read,
                price.bytes_written,
                price.host_bytes_read,
                price.host_bytes_written,
            ]) {
                *sum += share * bytes as f64;
            }
        }
        Some(Price {
            bytes,
            seconds_per_step: sum.0,
            recomputed_nodes: sum.2.round() as u32,
            recompute_seconds: sum.1,
            bytes_read: moved[0] as u64,
            bytes_written: moved[1] as u64,
            host_bytes_read: moved[2] as u64,
            host_bytes_written: moved[3] as u64,
        })
    };
    budgets.iter().rev().filter_map(price).collect()
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
        .map(|&value| &compiled.problem.values[value as usize])
        .filter(|value| value.home != Home::External)
        .map(|value| value.bytes)
        .sum()
}

/// The family of a problem as a list of so many prices: the one place that looks at more than one of
/// its plans.
fn prices(
    problem: &Arc<Problem>,
    cache: &mut PlanCache,
    policy: Policy,
    count: usize,
) -> Vec<Price> {
    if count == 0 {
        return Vec::new();
    }
    let plans = match cache.family(problem, policy) {
        Ok(family) => family.plans(problem, count),
        Err(_) => Vec::new(),
    };
    plans.iter().map(price).collect()
}

/// What all of a plan costs.
fn price(plan: &Plan) -> Price {
    Price {
        bytes: plan.memory_bytes(),
        seconds_per_step: plan.seconds,
        recomputed_nodes: plan.recomputed_nodes,
        recompute_seconds: plan.recompute_seconds,
        bytes_read: plan.disk.read_bytes,
        bytes_written: plan.disk.written_bytes,
        host_bytes_read: plan.host.read_bytes,
        host_bytes_written: plan.host.written_bytes,
    }
}

/// What the runs that a plan came to cost.
fn price_of_runs(plan: &Plan, compiled: &Compiled, ran: &Ran) -> Price {
    let runs = |action: &Action| matches!(action, Action::Run { .. } | Action::Guard { .. });
    let all = plan.instructions.iter().filter(|i| runs(&i.action)).count();
    // A plan that another takes over moves about as much of its bytes as it runs of its nodes.
    let part = |bytes: u64| bytes * ran.nodes.len() as u64 / all.max(1) as u64;
    let mut price = Price {
        bytes: plan.memory_bytes(),
        seconds_per_step: 0.0,
        recomputed_nodes: 0,
        recompute_seconds: 0.0,
        bytes_read: part(plan.disk.read_bytes),
        bytes_written: part(plan.disk.written_bytes),
        host_bytes_read: part(plan.host.read_bytes),
        host_bytes_written: part(plan.host.written_bytes),
    };
    let nodes = &compiled.problem.nodes;
    let mut seen: Vec<bool> = nodes.iter().map(|node| node.done).collect();
    for (&node, &left_out) in ran.nodes.iter().zip(&ran.left_out) {
        let seconds = nodes[node as usize].seconds_without(|o| left_out >> o & 1 == 1);
        price.seconds_per_step += seconds;
        if std::mem::replace(&mut seen[node as usize], true) {
            price.recomputed_nodes += 1;
            price.recompute_seconds += seconds;
        }
    }
    price.seconds_per_step += compiled.predicted_wait(plan, ran);
    price
}

impl Engine {
    /// What the newest whole step takes, all its plans together, and what other budgets would cost.
    /// Where a step was refused: as far as it was planned. Looking at other budgets takes time, the
    /// first time after a new plan.
    pub fn forecast(&self) -> Option<Forecast> {
        let state = &mut *self.lock();
        let (policy, count) = (self.0.policy, self.0.prices);
        let cache = &mut state.cache;
        let prices = |problem: &Arc<Problem>| prices(problem, cache, policy, count);
        state.steps.forecast(prices)
    }

    /// Says all there is to say about a new plan and its family.
    pub(crate) fn tell(
        &self,
        state: &State,
        graph: &Graph,
        compiled: &Compiled,
        family: &Families,
        plan: &Plan,
    ) -> Told {
        let stated = self.stated(state);
        let state_bytes = self.beside(state, compiled);
        let point =
            |(arena_bytes, home_bytes), node: Option<NodeId>, values: &[_], scratch_bytes| {
                let node = node.and_then(|node| compiled.nodes.get(node as usize).copied());
                let moment = Moment {
                    arena_bytes,
                    home_bytes,
                    node,
                    values,
                    scratch_bytes,
                };
                let beside = Beside {
                    state: state_bytes,
                    reserve: stated.process(arena_bytes + home_bytes + state_bytes),
                    host: stated.host,
                };
                Point {
                    arena_bytes,
                    at: node
                        .map(|node| describe(graph.node(node)))
                        .unwrap_or_default(),
                    held: held(state, graph, compiled, &moment, &beside),
                }
            };
        let floor = family.floor();
        let at_peak = holders(&compiled.problem, plan, plan.peak_instruction as usize);
        let node = running(plan, plan.peak_instruction);
        Told {
            problem: Arc::clone(&compiled.problem),
            prices: OnceLock::new(),
            floor: point(
                (self.least_budget(compiled, floor.arena_bytes), 0),
                floor.node,
                &floor.holders,
                floor.scratch_bytes,
            ),
            peak: point(
                (plan.arena_bytes, plan.home_bytes),
                node,
                &at_peak.values,
                at_peak.scratch_bytes,
            ),
            saved_bytes: saved_bytes(graph, compiled),
            decisions: decisions::decisions(graph, compiled, plan),
        }
    }

    /// A plan as a part of a step, and what ran of it; nothing, if it does not fit.
    pub(crate) fn part(
        &self,
        state: &State,
        told: Arc<Told>,
        plan: Arc<Plan>,
        compiled: &Compiled,
        ran: Option<&Ran>,
    ) -> Part {
        let stated = self.stated(state);
        Part {
            told,
            fits: ran.is_some(),
            state_bytes: self.beside(state, compiled),
            stated,
            ran: ran.map_or_else(|| price(&plan), |ran| price_of_runs(&plan, compiled, ran)),
            plan,
        }
    }

    /// Notes that a step ends here for want of memory: what it would take at least.
    pub(crate) fn note_refusal(&self, state: &mut State, compiled: &Compiled, family: &Families) {
        let Ok(least) = family.choose(&compiled.problem, family.floor().arena_bytes) else {
            return;
        };
        let told = self.tell(state, &state.graph, compiled, family, &least);
        let part = self.part(state, Arc::new(told), Arc::new(least), compiled, None);
        state.steps.add(part);
        state.steps.end();
    }
}
