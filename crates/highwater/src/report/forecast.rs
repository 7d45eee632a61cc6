//! What a step will take, before it runs: who holds the bytes at the peak, what each budget costs.
//!
//! A step is one plan, or several: where gradients accumulate, where a value is read before the step
//! ends. A forecast is of the whole path: the highest peak, the highest floor, seconds together.

use super::decisions::Decision;
use super::held::Held;
use super::price::Price;
use super::steps::{StepPlan, Steps};
use highwater_plan::{Families, Plan, Problem, Tier};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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

/// What is to be told of the last whole step, or of what there is of one, if none ended yet, with so many
/// prices of each plan. `family` answers the plans of a problem.
pub(crate) fn forecast(
    steps: &Steps,
    count: usize,
    mut family: impl FnMut(&Arc<Problem>) -> Option<Arc<Families>>,
) -> Option<Forecast> {
    let plans = steps.newest();
    let there = plans.iter().all(|plan| plan.told.look(count, &mut family));
    if there { together(plans) } else { None }
}

/// Brings the plans of a step together.
fn together(plans: &[StepPlan]) -> Option<Forecast> {
    let first_of = |key: fn(&StepPlan) -> u64| {
        let best = plans.iter().map(key).max()?;
        plans.iter().find(|plan| key(plan) == best)
    };
    let (floor, peak) = (
        first_of(StepPlan::floor_bytes)?,
        first_of(StepPlan::peak_bytes)?,
    );
    let (floor_bytes, at_floor) = (floor.floor_bytes(), floor.told.floor()?);
    let ran = || plans.iter().map(|plan| plan.ran);
    Some(Forecast {
        fits: plans.iter().all(|plan| plan.fits),
        budget_bytes: peak.stated.budget,
        floor_bytes,
        floor_at: at_floor.at.clone(),
        floor_held: at_floor.held.clone(),
        peak_bytes: peak.peak_bytes(),
        peak_at: peak.told.peak.at.clone(),
        peak_held: peak.told.peak.held.clone(),
        seconds_per_step: ran().map(|ran| ran.seconds_per_step).sum(),
        recomputed_nodes: ran().map(|ran| ran.recomputed_nodes).sum(),
        recompute_seconds: ran().map(|ran| ran.recompute_seconds).sum(),
        bytes_read: ran().map(|ran| ran.bytes_read).sum(),
        bytes_written: ran().map(|ran| ran.bytes_written).sum(),
        disk_bytes: most_on(plans, Tier::Disk),
        host_bytes_read: ran().map(|ran| ran.host_bytes_read).sum(),
        host_bytes_written: ran().map(|ran| ran.host_bytes_written).sum(),
        host_bytes: most_on(plans, Tier::Host),
        arena_bytes: peak.plan.arena_bytes,
        state_bytes: peak.state_bytes + peak.plan.home_bytes,
        reserve_bytes: peak
            .stated
            .process(peak.plan.memory_bytes() + peak.state_bytes),
        saved_bytes: plans
            .iter()
            .map(|plan| plan.told.saved_bytes)
            .max()
            .unwrap_or(0),
        curve: curve(plans, floor_bytes),
        plans: plans.len() as u32,
        decisions: peak.told.decisions.clone(),
        plan: Plan::clone(&peak.plan),
    })
}

/// The most that plans take on a tier.
fn most_on(plans: &[StepPlan], tier: Tier) -> u64 {
    let taken = plans.iter().map(|plan| {
        let traffic = plan.plan.traffic(tier);
        traffic.home_bytes + traffic.spill_bytes
    });
    taken.max().unwrap_or(0)
}

/// What the plans cost together, for each budget at which one of them becomes faster.
fn curve(plans: &[StepPlan], floor_bytes: u64) -> Vec<Price> {
    let prices = |plan: &StepPlan| -> Vec<u64> {
        let prices = plan.told.prices().iter();
        prices.map(|price| plan.whole(price.bytes)).collect()
    };
    let mut budgets: Vec<u64> = plans.iter().flat_map(prices).collect();
    budgets.retain(|&bytes| bytes >= floor_bytes);
    budgets.sort_unstable();
    budgets.dedup();
    let price = |&bytes: &u64| {
        let mut sum = (0.0, 0.0, 0.0);
        let mut moved = [0.0; 4];
        for plan in plans {
            let (price, share) = (plan.price(bytes)?, plan.share());
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
