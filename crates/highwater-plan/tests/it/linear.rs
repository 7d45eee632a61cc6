//! Where keeping all fits, nothing is searched, whatever the shape of the problem and its size.

use crate::common::samples::samples;
use crate::common::shapes::{chain, losses, recurrent, trained, wide};
use crate::common::tiered::{link, with_cells};
use highwater_plan::*;

/// More than any of the problems needs.
const PLENTY: u64 = 1 << 50;

fn shapes(nodes: usize) -> Vec<(&'static str, Problem)> {
    let tiers = Tiers {
        host: Some(link(2e10)),
        disk: Some(link(2e9)),
    };
    vec![
        ("chain", chain(nodes)),
        ("trained", trained(nodes)),
        ("recurrent", recurrent(nodes / 21)),
        ("wide", wide(nodes)),
        ("with tiers", with_cells(&trained(nodes), tiers, None)),
    ]
}

/// The plan for a budget that keeps all; asserts that nothing else was looked for.
fn kept(name: &str, problem: &Problem, budget: u64) -> Plan {
    let family = Families::build(problem, Policy::Auto).expect("sound");
    let (plan, faster_from) = family.choose_until(problem, budget).expect("it fits");
    assert!(!family.is_searched(), "{name} in {budget}");
    assert_eq!(faster_from, u64::MAX, "{name}: nothing is faster");
    verify(problem, &plan, budget).expect("sound");
    assert_eq!(
        (plan.recomputed_nodes, plan.moved_bytes()),
        (0, 0),
        "{name}"
    );
    plan
}

#[test]
fn nothing_is_searched_where_all_fits() {
    for (name, problem) in shapes(4_000) {
        let plan = kept(name, &problem, PLENTY);
        // What it takes is enough.
        kept(name, &problem, plan.memory_bytes());
        let family = Family::build(&problem, Policy::Auto).expect("sound");
        family.choose(&problem, PLENTY).expect("it fits");
        assert_eq!(
            family.simulated_runs(),
            problem.nodes.len() as u64,
            "{name}"
        );
    }
}

#[test]
fn packing_at_once_loses_little() {
    for sample in samples() {
        let plan = kept(sample.name, &sample.problem, PLENTY);
        let least = plan.live_bytes + plan.live_bytes / 20;
        assert!(plan.arena_bytes <= least, "{}", sample.name);
    }
    for (name, problem) in shapes(4_000)
        .into_iter()
        .filter(|(name, _)| *name != "chain")
    {
        let plan = kept(name, &problem, PLENTY);
        let least = plan.live_bytes + plan.live_bytes / 100;
        assert!(plan.arena_bytes <= least, "{name}");
    }
}

#[test]
fn less_is_searched_for_once() {
    let problem = trained(60);
    let family = Family::build(&problem, Policy::Auto).expect("sound");
    let all = family.choose(&problem, PLENTY).expect("it fits");
    let less = family
        .choose(&problem, all.live_bytes - 1)
        .expect("not below the floor");
    assert!(family.is_searched() && less.recomputed_nodes > 0);
    let runs = family.simulated_runs();
    family.choose(&problem, all.live_bytes / 2).ok();
    assert_eq!(family.simulated_runs(), runs);
    // Having looked changes nothing about what fits.
    assert_eq!(family.choose(&problem, PLENTY).expect("it fits"), all);
}

#[test]
fn another_length_takes_over_decisions() {
    let scaled = |times: u64| {
        let mut problem = trained(200);
        problem.values.iter_mut().for_each(|v| v.bytes *= times);
        problem
    };
    let (short, long) = (scaled(1), scaled(2));
    let known = Families::build(&short, Policy::Auto).expect("sound");
    let family = Families::build(&long, Policy::Auto).expect("sound");
    assert!(family.adapt(&known).is_none(), "nothing was decided yet");
    known.floor(&short);
    let adapted = family.adapt(&known).expect("the same structure");
    assert!(adapted.is_searched() && !family.is_searched());
    let least = adapted.floor(&long).arena_bytes;
    let plan = adapted.choose(&long, least).expect("it fits");
    verify(&long, &plan, least).expect("sound");
    assert!(plan.recomputed_nodes > 0);
}

/// Runs that a search simulates for each node.
fn searched_runs(problem: &Problem) -> f64 {
    let family = Family::build(problem, Policy::Auto).expect("sound");
    let least = family.floor(problem).arena_bytes;
    let plan = family.choose(problem, least).expect("it fits");
    verify(problem, &plan, least).expect("sound");
    family.simulated_runs() as f64 / problem.nodes.len() as f64
}

#[test]
fn a_search_simulates_no_more_for_each_node_of_a_longer_program() {
    for shape in [trained, losses] {
        let (short, long) = (searched_runs(&shape(2_000)), searched_runs(&shape(4_000)));
        assert!(long < short, "{short} {long}");
    }
}

#[test]
fn less_than_a_run_reads_is_refused_without_a_search() {
    let problem = trained(2_000);
    let family = Families::build(&problem, Policy::Auto).expect("sound");
    assert!(family.is_hopeless(64) && !family.is_hopeless(PLENTY));
    assert!(!family.is_searched());
}
