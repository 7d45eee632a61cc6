//! The verifier's law over what the engine compiles: its plans, tampered with, are rejected.

use crate::common::tamper::{Counts, tamper};
use crate::models::{Model, SAMPLES, random_graph};
use crate::share::some;
use crate::train::{PLAIN, Recipe, floor, run};
use highwater::plan::{Plan, Problem};
use highwater::{Engine, Result};
use std::cell::RefCell;

thread_local! {
    static PLANS: RefCell<Vec<(Problem, Plan)>> = const { RefCell::new(Vec::new()) };
}

fn keep(problem: &Problem, plan: &Plan) {
    PLANS.with_borrow_mut(|plans| plans.push((problem.clone(), plan.clone())));
}

/// Tampers with the plans of a model at its floor, with little and with plenty of memory: at least
/// 200 times.
fn check(what: &str, make: &dyn Fn(&Engine) -> Result<Box<dyn Model>>, recipe: Recipe) {
    let plenty = run(Engine::builder(), make, recipe).unwrap();
    let (least, most) = (floor(make, recipe, &plenty), plenty.peak_bytes());
    let mut tried = Counts::default();
    for budget in [least, least + (most - least) / 3, most] {
        let builder = Engine::builder().arena(budget).on_plan(keep);
        run(builder, make, recipe).unwrap();
        let plans = PLANS.take();
        assert!(!plans.is_empty(), "{what}: no plan was shown");
        // The largest: others are of parts that were read early.
        let (problem, plan) = plans
            .iter()
            .max_by_key(|(_, plan)| plan.instructions.len())
            .unwrap();
        let counts = tamper(problem, plan, budget, 10);
        tried.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
    }
    assert!(tried.iter().sum::<usize>() >= 200, "{what}: {tried:?}");
}

#[test]
fn tampered_plans_of_samples_are_rejected() {
    for sample in some(SAMPLES) {
        check(sample.name, &sample.make, PLAIN);
    }
}

#[test]
fn tampered_plans_of_random_graphs_are_rejected() {
    for seed in some(0..10) {
        let make = random_graph(seed);
        let recipe = Recipe {
            clip: seed % 2 == 1,
            ..PLAIN
        };
        check(&format!("random graph {seed}"), &make, recipe);
    }
}
