//! What holds for every problem and budget.

use crate::common::random::{half_done, random};
use highwater_plan::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Budgets from the floor to plenty.
fn budgets(problem: &Problem, family: &Family) -> Vec<u64> {
    let floor = family.floor(problem).arena_bytes;
    let top = family.plans(problem)[0].arena_bytes;
    (0..=12)
        .map(|i| floor + (top - floor) * i / 12)
        .chain([top * 2])
        .collect()
}

fn laws(problem: &Problem, policy: Policy) -> Result<(), TestCaseError> {
    let family = match Family::build(problem, policy) {
        Ok(family) => family,
        Err(ProblemError::Lost { .. }) if problem.nodes.iter().any(|n| n.done) => return Ok(()),
        Err(e) => return Err(TestCaseError::fail(e.to_string())),
    };
    let again = Family::build(problem, policy).expect("it worked before");
    let floors = [&family, &again].map(|family| family.floor(problem));
    prop_assert_eq!(floors[0], floors[1]);
    prop_assert_eq!(&family, &again, "planning is a function");
    let fastest = family.choose(problem, u64::MAX);
    prop_assert!(fastest.is_ok_and(|plan| floors[0].arena_bytes <= plan.arena_bytes));
    let mut last = f64::INFINITY;
    for budget in budgets(problem, &family) {
        let plan = family
            .choose(problem, budget)
            .expect("the budget is at least the floor");
        prop_assert!(plan.arena_bytes <= budget && plan.seconds <= last);
        last = plan.seconds;
        let proof = verify(problem, &plan, budget);
        prop_assert!(proof.is_ok(), "{proof:?} under {budget}");
        let held = holders(problem, &plan, plan.peak_instruction as usize);
        let sum: u64 = held.values.iter().map(|h| h.1).sum();
        prop_assert_eq!(sum + held.scratch_bytes, plan.live_bytes);
        pins(problem, &plan)?;
        explained(problem, &plan)?;
        if policy == Policy::Keep && problem.values.iter().all(|v| v.pin != Pin::Recompute) {
            prop_assert!(plan.recomputed_nodes == 0 || problem.nodes.iter().any(|n| n.done));
        }
    }
    if let Some(below) = family.floor(problem).arena_bytes.checked_sub(1) {
        let refusal = family
            .choose(problem, below)
            .expect_err("less than the floor");
        prop_assert_eq!(&refusal.floor, family.floor(problem));
    }
    Ok(())
}

/// What a plan's decisions cost is what the plan says that it repeats.
fn explained(problem: &Problem, plan: &Plan) -> Result<(), TestCaseError> {
    let decisions = explain(problem, plan);
    let again = || decisions.iter().filter(|d| d.choice == Choice::Recompute);
    let times: u32 = again().map(|d| d.times).sum();
    let seconds: f64 = again().map(|d| d.seconds).sum();
    prop_assert_eq!(times, plan.recomputed_nodes);
    prop_assert!((seconds - plan.recompute_seconds).abs() < 1e-9 * (1.0 + seconds));
    let lasting =
        |d: &Decision| (0.0..=plan.seconds * f64::from(d.times)).contains(&d.lasts_seconds);
    prop_assert!(decisions.iter().all(lasting), "{decisions:?}");
    Ok(())
}

/// A value pinned to be kept is never placed twice before its last use.
fn pins(problem: &Problem, plan: &Plan) -> Result<(), TestCaseError> {
    let mut placed = vec![false; problem.values.len()];
    let mut uses = vec![0; problem.values.len()];
    for n in problem.nodes.iter().filter(|n| !n.done) {
        n.inputs.iter().for_each(|&v| uses[v.index()] += 1);
    }
    let mut ran: Vec<bool> = problem.nodes.iter().map(|n| n.done).collect();
    for instruction in &plan.instructions {
        let (Action::Run { node, .. } | Action::Guard { node }) = instruction.action else {
            continue;
        };
        let n = &problem.nodes[node.index()];
        if !std::mem::replace(&mut ran[node.index()], true) {
            n.inputs.iter().for_each(|&v| uses[v.index()] -= 1);
        }
        let Action::Run { outputs, .. } = &instruction.action else {
            continue;
        };
        for (&v, _) in n.outputs.iter().zip(outputs).filter(|(_, o)| o.is_some()) {
            let kept = problem.values[v.index()].pin == Pin::Keep && !n.done;
            let again = std::mem::replace(&mut placed[v.index()], true);
            prop_assert!(
                !(kept && again && uses[v.index()] > 0),
                "value {} is pinned",
                v
            );
        }
    }
    Ok(())
}

/// The problem with its pins as preferences.
fn preferring(problem: &Problem) -> Problem {
    let mut problem = problem.clone();
    for value in &mut problem.values {
        value.pin = match value.pin {
            Pin::Keep => Pin::PreferKeep,
            Pin::Recompute => Pin::PreferRecompute,
            pin => pin,
        };
    }
    problem
}

/// Preferences are followed where that fits, cost no memory where it does not, and more memory is
/// never slower.
fn preferences(pinned: &Problem) -> Result<(), TestCaseError> {
    let problem = preferring(pinned);
    let followed = Family::build(pinned, Policy::Auto).expect("sound");
    let free = Family::build(&problem, Policy::Auto).expect("sound");
    let families = Families::build(&problem, Policy::Auto).expect("sound");
    let floors = (
        followed.floor(pinned).arena_bytes,
        free.floor(&problem).arena_bytes,
    );
    prop_assert_eq!(families.floor(&problem).arena_bytes, floors.0.min(floors.1));
    let mut last = f64::INFINITY;
    let all = budgets(&problem, &free).into_iter();
    let all = all.chain(budgets(pinned, &followed));
    for budget in all.collect::<BTreeSet<_>>() {
        let Ok(plan) = families.choose(&problem, budget) else {
            prop_assert!(budget < floors.0.min(floors.1));
            continue;
        };
        prop_assert!(plan.arena_bytes <= budget && plan.seconds <= last);
        last = plan.seconds;
        let (until, faster_from) = families.choose_until(&problem, budget).expect("it fits");
        prop_assert!(until == plan && faster_from > budget, "{faster_from}");
        if faster_from < u64::MAX {
            let before = families.choose(&problem, faster_from - 1);
            let before = before.expect("it fits").seconds;
            prop_assert_eq!(before.to_bits(), plan.seconds.to_bits());
        }
        let proof = verify(&problem, &plan, budget);
        prop_assert!(proof.is_ok(), "{proof:?} under {budget}");
        if plan.arena_bytes >= floors.0 {
            prop_assert_eq!(&plan, &followed.choose(pinned, budget).expect("it fits"));
            pins(pinned, &plan)?;
        }
    }
    let slower = |pair: (&Plan, &Plan)| {
        pair.0.seconds < pair.1.seconds && pair.0.arena_bytes > pair.1.arena_bytes
    };
    let listed = families.plans(&problem, 12);
    prop_assert!(listed.iter().zip(&listed[1..]).all(slower));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whole_steps(seed in any::<u64>(), nodes in 1..14usize) {
        laws(&random(seed, nodes), Policy::Auto)?;
    }

    #[test]
    fn whole_steps_that_keep(seed in any::<u64>(), nodes in 1..14usize) {
        laws(&random(seed, nodes), Policy::Keep)?;
    }

    #[test]
    fn whole_steps_that_recompute(seed in any::<u64>(), nodes in 1..14usize) {
        laws(&random(seed, nodes), Policy::Recompute)?;
    }

    #[test]
    fn preferences_are_followed_where_that_fits(seed in any::<u64>(), nodes in 1..14usize) {
        preferences(&random(seed, nodes))?;
    }

    #[test]
    fn second_halves(seed in any::<u64>(), nodes in 1..14usize) {
        laws(&half_done(seed, nodes), Policy::Auto)?;
    }
}

/// A chain of nodes that ran before, all of which have to run again for what its end is read for.
fn gone(nodes: usize) -> Problem {
    let mut problem = Problem::default();
    let value = |wanted| Value {
        bytes: 64,
        home: Home::External,
        pin: Pin::Free,
        wanted,
    };
    problem.values.push(value(false));
    for v in 0..=nodes {
        problem.values.push(Value {
            home: Home::Arena,
            ..value(v == nodes)
        });
        let mut node = Node::new(&[ValueId::new(v)], &[ValueId::new(v + 1)], 1.0);
        node.done = v < nodes;
        problem.nodes.push(node);
    }
    problem
}

/// Updates of so many cells, each by a gradient of its own that is there already.
fn updates(cells: usize) -> Problem {
    let mut problem = Problem::default();
    for v in 0..cells {
        problem.values.push(Value {
            bytes: 64,
            home: Home::External,
            pin: Pin::Free,
            wanted: false,
        });
        let mut node = Node::new(&[ValueId::new(v)], &[], 1.0);
        node.writes.push((CellId::new(v), 0));
        node.effect = Effect::Once;
        problem.nodes.push(node);
    }
    problem
}

/// However few steps a problem has besides, thousands of nodes that are no steps are no reason to
/// think that a plan never ends.
#[test]
fn many_updates_and_much_that_ran_before() {
    for problem in [gone(6_000), updates(6_000)] {
        let family = Family::build(&problem, Policy::Auto).expect("sound");
        let plan = family.choose(&problem, 1 << 20).expect("it fits");
        let runs = |i: &&Instruction| matches!(i.action, Action::Run { .. });
        let runs = plan.instructions.iter().filter(runs).count();
        assert_eq!(runs, problem.nodes.len());
    }
}

/// Small peaks may pack badly: one search found nothing here that packs better than the fastest plan.
#[test]
fn the_floor_is_at_most_what_the_fastest_plan_takes() {
    let problem = half_done(11_766_983_232_463_303_432, 11);
    laws(&problem, Policy::Auto).expect("the laws hold");
}
