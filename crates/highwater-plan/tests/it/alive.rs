//! Budgets of live bytes: what a budget gets has no more alive, more is never slower, and the least is no
//! more than what an arena needs.

use crate::common::random::random;
use crate::common::samples::samples;
use highwater_plan::{Families, Policy, Problem, verify};

const BUDGETS: u64 = 10;

fn check(name: &str, problem: &Problem) -> usize {
    let families = Families::build(problem, Policy::Auto).expect("a sound problem");
    let floor = families.floor_alive(problem).arena_bytes;
    assert!(floor <= families.floor(problem).arena_bytes, "{name}");
    let refusal = families.choose_alive(problem, floor.saturating_sub(1));
    assert!(floor == 0 || refusal.is_err(), "{name}");
    let all = families
        .choose_alive(problem, u64::MAX)
        .expect("no budget is too small");
    let mut last = f64::INFINITY;
    for i in 0..=BUDGETS {
        let budget = floor + (all.live_bytes - floor) * i / BUDGETS;
        let plan = families
            .choose_alive(problem, budget)
            .expect("not below the floor");
        verify(problem, &plan, plan.arena_bytes).expect("a sound plan");
        assert!(plan.live_bytes <= budget, "{name} in {budget}");
        assert!(plan.seconds <= last, "{name} in {budget}");
        // What has an arena of so many bytes has no more alive.
        if let Ok(packed) = families.choose(problem, budget) {
            assert!(
                packed.seconds >= plan.seconds * (1.0 - 1e-9),
                "{name} in {budget}"
            );
        }
        last = plan.seconds;
    }
    let told = families.outcomes_alive(8);
    let falling = |w: &[(u64, f64)]| w[1].0 < w[0].0 && w[1].1 > w[0].1;
    assert!(told.windows(2).all(falling), "{name}");
    assert_eq!(told.last().map(|last| last.0), Some(floor), "{name}");
    told.len()
}

#[test]
fn samples_keep_to_live_bytes() {
    for sample in samples() {
        assert!(check(sample.name, &sample.problem) >= 4, "{}", sample.name);
    }
}

#[test]
fn random_problems_keep_to_live_bytes() {
    for seed in 0..10 {
        check(&format!("seed {seed}"), &random(seed, 20));
    }
}
