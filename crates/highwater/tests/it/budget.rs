//! The budget law: a budget that fits changes what is recomputed, never one bit of what comes out.

use crate::models::{
    CONCATENATED, DEEP_TIED_GPT, DENSE, LARGE_RANDOM_GRAPH, LOSS_AT_EACH_DEPTH, Model, PINNED_GPT,
    SAMPLES, SHARED_BLOCK, SKIPS, SMALL_GPT, Sample, TWO_LOSSES, TWO_OPTIMIZERS, UNET,
    random_graph,
};
use crate::share::{one_of, some};
use crate::train::{
    IN_PIECES, PAGE, PLAIN, Recipe, Trace, assert_same_bits, assert_within, floor, run, train,
};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Error, Parameter, Policy, Result};
use std::collections::BTreeSet;

pub(crate) type Make<'a> = &'a dyn Fn(&Engine) -> Result<Box<dyn Model>>;

/// Trains in budgets from the floor to plenty; answers what each gave, least first.
pub(crate) fn check_budgets(
    what: &str,
    make: Make<'_>,
    recipe: Recipe,
    budgets: u64,
) -> Vec<Trace> {
    let plenty = run(Engine::builder(), make, recipe).unwrap();
    let (least, most) = (floor(make, recipe, &plenty), plenty.peak_bytes());
    let budgets = budgets.div_ceil(one_of() as u64).max(2);
    assert!(least < most, "{what}: {least} and {most}");
    let in_budget = |i: u64| {
        let budget = least + (most - least) * i / (budgets - 1);
        let what = format!("{what}, {recipe:?}, {budget} of {least} to {most}");
        let trace = run(Engine::builder().arena(budget), make, recipe)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_same_bits(&what, &trace, &plenty);
        assert_within(&what, budget, &trace);
        trace
    };
    (0..budgets).map(in_budget).collect()
}

fn check_law(sample: Sample) {
    // Rows enough for budgets of different numbers of pages.
    let recipe = Recipe { rows: 12, ..PLAIN };
    let traces = check_budgets(sample.name, &sample.make, recipe, 12);
    let plans: Vec<(f64, u64)> = traces.iter().map(Trace::plan).collect();
    assert!(
        plans.windows(2).all(|pair| pair[1].0 <= pair[0].0),
        "{}: {plans:?}",
        sample.name
    );
    if sample.deep {
        let different: BTreeSet<_> = plans.iter().map(|p| (p.0.to_bits(), p.1)).collect();
        // Eight of all twelve.
        let enough = different.len() * 3 >= plans.len() * 2;
        assert!(enough, "{}: {plans:?}", sample.name);
    }
    let (least, most) = (plans[0], plans[plans.len() - 1]);
    assert!(least.0 > most.0, "{}: {plans:?}", sample.name);
}

#[test]
fn small_gpt() {
    check_law(SMALL_GPT);
}

#[test]
fn deep_gpt_with_a_tied_head() {
    check_law(DEEP_TIED_GPT);
}

#[test]
fn one_block_applied_six_times() {
    check_law(SHARED_BLOCK);
}

#[test]
fn two_optimizers_over_one_graph() {
    check_law(TWO_OPTIMIZERS);
}

#[test]
fn two_losses_on_one_trunk() {
    check_law(TWO_LOSSES);
}

#[test]
fn skips_across() {
    check_law(SKIPS);
}

#[test]
fn sums_of_views_of_all_before() {
    check_law(DENSE);
}

#[test]
fn concatenations_across() {
    check_law(UNET);
}

#[test]
fn concatenations_of_all_before() {
    check_law(CONCATENATED);
}

#[test]
fn a_loss_at_each_depth_through_a_tied_head() {
    check_law(LOSS_AT_EACH_DEPTH);
}

#[test]
fn a_random_graph_of_200_nodes() {
    check_law(LARGE_RANDOM_GRAPH);
}

/// Bytes that nothing here comes near to.
const PLENTY: u64 = 1 << 40;

#[test]
fn without_a_budget_what_costs_next_to_nothing_is_not_kept() {
    let thrifty = run(Engine::builder(), &SMALL_GPT.make, PLAIN).unwrap();
    let plenty = run(Engine::builder().arena(PLENTY), &SMALL_GPT.make, PLAIN).unwrap();
    assert_same_bits("no budget", &thrifty, &plenty);
    let (thrifty, plenty) = (thrifty.last(), plenty.last());
    assert!(thrifty.planned_arena_bytes < plenty.planned_arena_bytes);
    assert!(thrifty.predicted_seconds <= plenty.predicted_seconds * 1.01);
}

#[test]
fn checkpoints_are_recomputed_with_any_memory_and_give_the_same_bits() {
    check_law(PINNED_GPT);
    let pinned = run(Engine::builder(), &PINNED_GPT.make, PLAIN).unwrap();
    assert!(
        pinned
            .reports
            .iter()
            .all(|report| report.recomputed_nodes > 0)
    );
    let free = run(Engine::builder().arena(PLENTY), &SMALL_GPT.make, PLAIN).unwrap();
    assert!(
        free.reports
            .iter()
            .all(|report| report.recomputed_nodes == 0)
    );
    assert_same_bits("pins", &pinned, &free);
    assert!(pinned.last().planned_arena_bytes < free.last().planned_arena_bytes);
}

#[test]
fn clipping_and_accumulation() {
    let recipes = [(true, 1), (false, 3), (true, 3)];
    for (sample, recipes) in some([
        (SMALL_GPT, &recipes[..]),
        (TWO_OPTIMIZERS, &recipes),
        (SKIPS, &recipes),
        (TWO_LOSSES, &recipes[..1]),
        (DENSE, &recipes[..1]),
    ]) {
        let mut bits = BTreeSet::new();
        for &(clip, accumulate) in recipes {
            let recipe = Recipe {
                clip,
                accumulate,
                ..PLAIN
            };
            let traces = check_budgets(sample.name, &sample.make, recipe, 3);
            bits.insert(traces[0].bits.last().cloned());
        }
        assert_eq!(
            bits.len(),
            recipes.len(),
            "{}: a recipe that changes nothing",
            sample.name
        );
    }
}

#[test]
fn updates_in_pieces_have_the_bits_of_whole_ones() {
    let samples = [
        (DEEP_TIED_GPT, 8),
        (TWO_OPTIMIZERS, 12),
        (LOSS_AT_EACH_DEPTH, 8),
    ];
    for (sample, budgets) in some(samples) {
        let traces = check_budgets(sample.name, &sample.make, IN_PIECES, budgets);
        let whole = run(Engine::builder(), &sample.make, PLAIN).unwrap();
        assert_same_bits(sample.name, &traces[0], &whole);
        let nodes = |trace: &Trace| trace.last().nodes;
        let plenty = traces.last().expect("budgets");
        assert!(nodes(plenty) > nodes(&whole), "{}: no pieces", sample.name);
    }
    let odd = Recipe {
        clip: true,
        accumulate: 3,
        keep_grads: true,
        ..IN_PIECES
    };
    for recipe in some([odd, Recipe { clip: false, ..odd }]) {
        let traces = check_budgets("pieces", &SMALL_GPT.make, recipe, 5);
        let whole = Recipe {
            piece_bytes: None,
            ..recipe
        };
        let whole = run(Engine::builder(), &SMALL_GPT.make, whole).unwrap();
        assert_same_bits("pieces", &traces[0], &whole);
    }
}

#[test]
fn kept_gradients() {
    for (clip, accumulate) in [(false, 1), (true, 1), (false, 3)] {
        let recipe = Recipe {
            clip,
            accumulate,
            keep_grads: true,
            ..PLAIN
        };
        let traces = check_budgets("kept gradients", &TWO_OPTIMIZERS.make, recipe, 3);
        let gradients = traces[0]
            .bits
            .iter()
            .filter(|(name, _)| name.contains("gradient"));
        assert!(gradients.count() > 10);
    }
}

#[test]
fn random_graphs() {
    for seed in some(0..10) {
        let make = random_graph(seed);
        let recipe = Recipe {
            clip: seed % 2 == 1,
            accumulate: 1 + seed % 3,
            ..PLAIN
        };
        check_budgets(&format!("random graph {seed}"), &make, recipe, 12);
    }
}

#[test]
fn threads_policies_and_eager_give_the_same_bits() {
    for sample in some(SAMPLES) {
        let expected = run(Engine::builder().threads(2), &sample.make, PLAIN).unwrap();
        let policy = |policy| Engine::builder().threads(2).policy(policy);
        let threads = |threads| Engine::builder().threads(threads).policy(Policy::Keep);
        let others = [
            ("1 thread", threads(1)),
            ("3 threads", threads(3)),
            ("4 threads", threads(4)),
            ("keep", policy(Policy::Keep)),
            ("recompute", policy(Policy::Recompute)),
            ("eager", Engine::eager().threads(2)),
        ];
        for (other, builder) in others {
            let trace = run(builder, &sample.make, PLAIN).unwrap();
            assert_same_bits(&format!("{}, {other}", sample.name), &trace, &expected);
        }
    }
}

#[test]
fn a_policy_is_kept_to() {
    let recomputed = |policy| {
        let builder = Engine::builder().policy(policy);
        run(builder, &SMALL_GPT.make, PLAIN)
            .unwrap()
            .last()
            .recomputed_nodes
    };
    assert_eq!(recomputed(Policy::Keep), 0);
    assert!(recomputed(Policy::Recompute) > 0);
}

#[test]
fn a_page_below_the_floor_is_refused_and_nothing_changes() {
    for sample in [SMALL_GPT, DENSE] {
        let plenty = run(Engine::builder(), &sample.make, PLAIN).unwrap();
        let least = floor(&sample.make, PLAIN, &plenty);
        let engine = Engine::builder()
            .arena(least - PAGE)
            .seed(11)
            .build()
            .unwrap();
        let model = (sample.make)(&engine).unwrap();
        let parameters: Vec<Parameter> = model.sets().concat();
        let mut adamw = AdamW::new(parameters.clone(), AdamWOptions::default()).unwrap();
        let moments = adamw.state_dict();
        let bytes = || {
            let cells = parameters
                .iter()
                .chain(moments.iter().map(|(_, moment)| moment));
            cells
                .map(|p| p.with_bytes(<[u8]>::to_vec).unwrap())
                .collect::<Vec<_>>()
        };
        let (before, state) = (bytes(), engine.state_bytes());
        let loss = model.losses(0, PLAIN.rows).unwrap().remove(0);
        loss.backward().unwrap();
        let refused = adamw.step().unwrap_err();
        let Error::OverBudget {
            floor_bytes,
            budget_bytes,
            at,
            holder,
            ..
        } = &refused
        else {
            panic!("{refused}");
        };
        assert_eq!((*floor_bytes, *budget_bytes), (least, least - PAGE));
        assert!(at.contains("models.rs") || at.contains("budget.rs"), "{at}");
        assert!(!holder.is_empty());
        assert_eq!(bytes(), before);
        assert_eq!(adamw.steps(), 0);
        drop((loss, adamw, moments));
        assert!(engine.state_bytes() <= state + PAGE);
        // Half the batch fits, in the same engine, and is not disturbed by what was refused.
        let smaller = Recipe {
            rows: PLAIN.rows / 2,
            ..PLAIN
        };
        let after = train(&*model, &engine, smaller).unwrap();
        let other = Engine::builder().seed(11).build().unwrap();
        let model = (sample.make)(&other).unwrap();
        drop(model.losses(0, PLAIN.rows).unwrap());
        let expected = train(&*model, &other, smaller).unwrap();
        assert_same_bits(sample.name, &after, &expected);
    }
}

#[test]
fn a_dry_run_tells_what_a_run_takes() {
    let real = run(Engine::builder(), &SMALL_GPT.make, PLAIN).unwrap();
    let least = floor(&SMALL_GPT.make, PLAIN, &real);
    for budget in [least, real.peak_bytes()] {
        let real = run(Engine::builder().arena(budget), &SMALL_GPT.make, PLAIN).unwrap();
        let engine = Engine::builder()
            .dry_run()
            .arena(budget)
            .seed(11)
            .build()
            .unwrap();
        let model = (SMALL_GPT.make)(&engine).unwrap();
        let mut adamw = AdamW::new(model.sets().concat(), AdamWOptions::default()).unwrap();
        let loss = model.losses(0, PLAIN.rows).unwrap().remove(0);
        loss.backward().unwrap();
        adamw.step().unwrap();
        let forecast = engine.forecast().expect("a step was planned");
        assert!(forecast.fits);
        assert_eq!(forecast.floor_bytes, least);
        assert_eq!(forecast.arena_bytes, real.last().planned_arena_bytes);
        assert_eq!(forecast.state_bytes, real.last().state_bytes);
        assert_eq!(forecast.recomputed_nodes, real.last().recomputed_nodes);
    }
}
