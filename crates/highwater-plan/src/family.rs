//! Every plan found for a problem, and the choice among them.

use crate::check::{ProblemError, check};
use crate::emit::emit;
use crate::holders::holders;
use crate::plan::{Action, Plan};
use crate::problem::{NodeId, Problem, ValueId};
use crate::program::Program;
use crate::search::{Found, Search};
use crate::settings::Limits;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How many budgets the search tries to do well at.
const RUNGS: u32 = 28;
/// Each rung is this much of the way from the one above down to the least that could work.
const RATIO: f64 = 0.88;

/// What the planner may decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// Whatever is fastest within the budget.
    #[default]
    Auto,
    /// Recompute nothing but what is pinned so.
    Keep,
    /// Recompute at least everything between cut values, as checkpointing per block does.
    Recompute,
}

/// What is held at the worst moment of the smallest plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// Least `arena_bytes` found.
    pub arena_bytes: u64,
    /// The node that runs at that moment, if any.
    pub node: Option<NodeId>,
    /// The values held then, with the bytes that they take, largest first.
    pub holders: Vec<(ValueId, u64)>,
    /// Bytes of the node's scratch memory.
    pub scratch_bytes: u64,
}

impl Floor {
    fn of(problem: &Problem, plan: &Plan) -> Floor {
        let peak = plan.peak_instruction as usize;
        let held = holders(problem, plan, peak);
        let node = plan.instructions.get(peak).and_then(|i| match i.action {
            Action::Run { node, .. } | Action::Guard { node } => Some(node),
            _ => None,
        });
        Floor {
            arena_bytes: plan.arena_bytes,
            node,
            holders: held.values,
            scratch_bytes: held.scratch_bytes,
        }
    }
}

/// No plan fits the budget.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", refusal(*budget_bytes, floor))]
pub struct Refusal {
    /// What was asked for.
    pub budget_bytes: u64,
    /// The least that would do.
    pub floor: Floor,
}

fn refusal(budget: u64, floor: &Floor) -> String {
    let node = floor
        .node
        .map_or(String::new(), |n| format!(" (set by node {n})"));
    let holder = match floor.holders.first() {
        Some((v, bytes)) if *bytes >= floor.scratch_bytes => {
            format!("; the largest holder is value {v} with {bytes} bytes")
        }
        _ if floor.scratch_bytes > 0 => {
            format!(
                "; the largest holder is its scratch with {} bytes",
                floor.scratch_bytes
            )
        }
        _ => String::new(),
    };
    format!(
        "need at least {} bytes{node}, have {budget}{holder}",
        floor.arena_bytes
    )
}

/// Every plan found for a problem under a policy: a curve of seconds over bytes. It doesn't depend
/// on any budget, so seconds never rise with the budget and the floor is one number.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    plans: Vec<Plan>,
    floor: Floor,
}

impl Family {
    /// Plans a problem.
    ///
    /// # Errors
    /// If the problem makes no sense.
    pub fn build(problem: &Problem, policy: Policy) -> Result<Family, ProblemError> {
        check(problem)?;
        let program = Program::new(problem)?;
        let limits = Limits::new(problem, &program, policy);
        let lost = |value| ProblemError::Lost { value };
        let mut search = Search::new(&program, limits).map_err(lost)?;
        let top = search
            .archive
            .all()
            .last()
            .map_or(0, |found| found.outcome.peak);
        let least = least(&program);
        let rungs = rungs(top, least);
        if policy != Policy::Keep {
            search.explore(&rungs);
        }
        let chosen = select(&search, &rungs);
        let emit =
            |found: &Found| emit(problem, &program, &mut search.simulator, &found.settings).ok();
        let plans = pareto(chosen.iter().filter_map(emit).collect());
        let floor = plans
            .last()
            .map_or_else(Floor::default, |plan| Floor::of(problem, plan));
        Ok(Family { plans, floor })
    }

    /// The fastest plan whose arena fits; of equally fast ones that with the least arena.
    ///
    /// # Errors
    /// If no plan fits.
    pub fn choose(&self, budget_bytes: u64) -> Result<&Plan, Refusal> {
        let fits = self.plans.iter().find(|p| p.arena_bytes <= budget_bytes);
        fits.ok_or_else(|| Refusal {
            budget_bytes,
            floor: self.floor.clone(),
        })
    }

    /// The least that would do, and what sets it.
    pub fn floor(&self) -> &Floor {
        &self.floor
    }

    /// The plans, fastest first; each slower one has a smaller arena.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }
}

/// Bytes below which no plan can be: the largest single run.
fn least(program: &Program) -> u64 {
    let bytes = |n: NodeId| {
        let values = program.inputs.row(n);
        let sum: u64 = values.iter().map(|&v| program.size[v as usize]).sum();
        sum + program.scratch.get(n as usize).copied().unwrap_or(0)
    };
    program.steps.iter().map(|&n| bytes(n)).max().unwrap_or(0)
}

/// Budgets from just below `top` down to `least`, closer and closer.
fn rungs(top: u64, least: u64) -> Vec<u64> {
    let span = top.saturating_sub(least) as f64;
    let rung = |i| least + (span * RATIO.powi(i)) as u64;
    let mut rungs: Vec<u64> = (1..=RUNGS as i32).map(rung).collect();
    rungs.push(least);
    rungs.dedup();
    rungs
}

/// What is worth packing: the best for each rung and half-way between, the fastest and the few
/// smallest.
fn select(search: &Search, rungs: &[u64]) -> Vec<Found> {
    let archive = &search.archive;
    let between = rungs.windows(2).map(|pair| pair[0].midpoint(pair[1]));
    let budgets = rungs.iter().copied().chain(between);
    let rungs = budgets.filter_map(|budget| archive.within(budget));
    let ends = archive.all().take(4).chain(archive.all().last());
    let mut chosen: Vec<Found> = rungs.chain(ends).cloned().collect();
    chosen.sort_by_key(|found| found.outcome.peak);
    chosen.dedup_by_key(|found| found.outcome.peak);
    chosen
}

/// Drops plans that are no faster than one with as small an arena; fastest first.
fn pareto(mut plans: Vec<Plan>) -> Vec<Plan> {
    plans.sort_by(|a, b| {
        a.seconds
            .total_cmp(&b.seconds)
            .then(a.arena_bytes.cmp(&b.arena_bytes))
    });
    let mut least = u64::MAX;
    plans.retain(|p| {
        let smaller = p.arena_bytes < least;
        least = least.min(p.arena_bytes);
        smaller
    });
    plans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Effect, Home, Node, Pin, Value};

    fn node(inputs: &[ValueId], outputs: &[ValueId]) -> Node {
        Node {
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            reads: Vec::new(),
            writes: Vec::new(),
            in_place: Vec::new(),
            scratch_bytes: 0,
            seconds: 1.0,
            optional: Vec::new(),
            effect: Effect::Repeatable,
            done: false,
        }
    }

    /// in -> a -> b -> c, then c, b, a are read again in turn.
    fn chain(bytes: u64) -> Problem {
        let arena = Value {
            bytes,
            home: Home::Arena,
            pin: Pin::Free,
            wanted: false,
        };
        let input = Value {
            home: Home::External,
            ..arena.clone()
        };
        let nodes = vec![
            node(&[0], &[1]),
            node(&[1], &[2]),
            node(&[2], &[3]),
            node(&[3], &[]),
            node(&[2], &[]),
            node(&[1], &[]),
        ];
        Problem {
            nodes,
            values: vec![input, arena.clone(), arena.clone(), arena],
        }
    }

    #[test]
    fn fewer_bytes_cost_more_seconds() {
        let family = Family::build(&chain(100), Policy::Auto).expect("sound");
        let all: Vec<(u64, f64)> = family
            .plans()
            .iter()
            .map(|p| (p.arena_bytes, p.seconds))
            .collect();
        assert_eq!(all, [(384, 6.0), (256, 7.0)]);
        assert_eq!(family.choose(u64::MAX).expect("fits").recomputed_nodes, 0);
        assert_eq!(family.choose(383).expect("fits").recomputed_nodes, 1);
    }

    #[test]
    fn a_refusal_says_need_have_and_holder() {
        let family = Family::build(&chain(100), Policy::Keep).expect("sound");
        let refusal = family.choose(300).expect_err("too little");
        assert_eq!(
            refusal.to_string(),
            "need at least 384 bytes (set by node 2), have 300; \
             the largest holder is value 1 with 128 bytes"
        );
        assert_eq!(refusal.floor, *family.floor());
    }

    #[test]
    fn an_output_takes_over_a_dying_input() {
        let mut problem = chain(100);
        problem.nodes.truncate(3);
        problem.nodes[1].in_place.push((0, 0));
        problem.nodes[2].in_place.push((0, 0));
        let family = Family::build(&problem, Policy::Auto).expect("sound");
        assert_eq!(family.floor().arena_bytes, 128);
    }

    #[test]
    fn updates_follow_the_guard_and_replays() {
        let mut problem = chain(100);
        problem.nodes[1].reads.push((7, 0));
        let mut guard = node(&[3], &[]);
        guard.effect = Effect::Guard;
        let mut update = node(&[3], &[]);
        (update.effect, update.writes) = (Effect::Once, vec![(7, 0)]);
        problem.nodes.extend([update, guard]);
        let family = Family::build(&problem, Policy::Auto).expect("sound");
        for plan in family.plans() {
            let at = |wanted: NodeId| {
                let runs = plan.instructions.iter().rposition(|i| match i.action {
                    Action::Run { node, .. } | Action::Guard { node } => node == wanted,
                    _ => false,
                });
                runs.expect("it runs")
            };
            assert!(at(7) < at(6) && at(1) < at(6));
        }
    }

    #[test]
    fn malformed_problems_are_typed_errors() {
        let build = |change: fn(&mut Problem)| {
            let mut problem = chain(100);
            change(&mut problem);
            Family::build(&problem, Policy::Auto).expect_err("malformed")
        };
        assert_eq!(
            build(|p| p.nodes[0].inputs[0] = 9),
            ProblemError::NoSuchValue { node: 0, value: 9 }
        );
        assert_eq!(
            build(|p| p.nodes[3].outputs.push(1)),
            ProblemError::TwoProducers {
                value: 1,
                first: 0,
                second: 3
            }
        );
        assert_eq!(
            build(|p| p.nodes[0].inputs[0] = 3),
            ProblemError::UsedBeforeFilled { node: 0, value: 3 }
        );
        assert_eq!(
            build(|p| p.nodes[1].in_place.push((0, 4))),
            ProblemError::BadInPlace {
                node: 1,
                input: 0,
                output: 4
            }
        );
        assert_eq!(
            build(|p| p.nodes[1].writes.push((0, 0))),
            ProblemError::RepeatableWrites { node: 1 }
        );
        assert_eq!(
            build(|p| p.nodes[2].seconds = f64::NAN),
            ProblemError::BadSeconds { node: 2 }
        );
        assert_eq!(
            build(|p| p.values[1].bytes = u64::MAX),
            ProblemError::TooLarge
        );
        let circle = build(|p| {
            p.nodes[0].effect = Effect::Once;
            p.nodes[0].writes.push((0, 0));
            p.nodes[3].effect = Effect::Guard;
        });
        assert!(matches!(circle, ProblemError::NoOrder { .. }));
        let lost = build(|p| {
            p.nodes[0].effect = Effect::Once;
            p.nodes[0].done = true;
        });
        assert_eq!(lost, ProblemError::Lost { value: 1 });
    }

    #[test]
    fn nothing_to_do_is_a_plan() {
        let family = Family::build(&Problem::default(), Policy::Auto).expect("sound");
        let plan = family.choose(0).expect("fits");
        assert!(plan.instructions.is_empty());
        crate::verify(&Problem::default(), plan, 0).expect("sound");
    }
}
