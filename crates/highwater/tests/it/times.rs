//! Times that are corrected while a run goes on change plans, never what comes out of it.

use crate::models::{SHARED_BLOCK, SKIPS, SMALL_GPT, Sample, TWO_LOSSES};
use crate::train::{PLAIN, Recipe, STEPS, assert_same_bits, assert_within, floor, run};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Rates};

/// A machine far slower than any that runs this, whose plans are those of the default.
fn slow() -> Rates {
    let rates = Rates::default();
    Rates {
        matmul_flops: rates.matmul_flops / 1e6,
        vector_flops: rates.vector_flops / 1e6,
        memory_bytes: rates.memory_bytes / 1e6,
        launch_seconds: rates.launch_seconds * 1e6,
        ..rates
    }
}

fn check(sample: Sample, recipe: Recipe) {
    let plenty = run(Engine::builder(), &sample.make, recipe).unwrap();
    let (least, most) = (floor(&sample.make, recipe, &plenty), plenty.peak_bytes());
    for budget in [least, u64::midpoint(least, most), most] {
        let what = format!("{}, {recipe:?}, {budget}", sample.name);
        let builder = Engine::builder().arena(budget).rates(slow());
        let trace = run(builder.correct_times(true), &sample.make, recipe)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_same_bits(&what, &trace, &plenty);
        assert_within(&what, budget, &trace);
        let predicted: Vec<f64> = (trace.reports.iter())
            .map(|report| report.predicted_seconds)
            .collect();
        let each = predicted.len() / STEPS as usize;
        // The first step is not looked at, the next three are; then the larger part is corrected at
        // least. Evaluations that share nodes with others may follow later.
        let sum = |step: usize| predicted[each * step..][..each].iter().sum::<f64>();
        assert!(sum(0) > 1.0, "{what}: {predicted:?}");
        assert!(
            sum(STEPS as usize - 1) < sum(0) / 2.0,
            "{what}: {predicted:?}"
        );
    }
}

#[test]
fn corrected_times_keep_bits_and_budgets() {
    for sample in [SMALL_GPT, SKIPS, SHARED_BLOCK, TWO_LOSSES] {
        check(sample, PLAIN);
    }
}

#[test]
fn corrected_times_with_clipping_and_accumulation() {
    let recipe = Recipe {
        clip: true,
        accumulate: 3,
        ..PLAIN
    };
    check(SMALL_GPT, recipe);
}

#[test]
fn times_are_corrected_only_where_that_was_asked_for() {
    let builder = Engine::builder().rates(slow());
    let trace = run(builder, &SMALL_GPT.make, PLAIN).unwrap();
    let predicted: Vec<f64> = (trace.reports.iter())
        .map(|report| report.predicted_seconds)
        .collect();
    assert_eq!(predicted.len(), STEPS as usize);
    assert!(predicted.iter().all(|seconds| *seconds == predicted[0]));
}

#[test]
fn plans_follow_corrected_times_unless_told_not_to() {
    for follow in [true, false] {
        let builder = Engine::builder().rates(slow()).correct_times(true);
        let engine = builder.correct_plans(follow).seed(11).build().unwrap();
        let model = (SMALL_GPT.make)(&engine).unwrap();
        let mut adamw = AdamW::new(model.sets().concat(), AdamWOptions::default()).unwrap();
        let mut step = |_| {
            for batch in 0..2 {
                let loss = model.losses(batch, 4).unwrap().remove(0);
                loss.backward().unwrap();
            }
            adamw.step().unwrap();
            (engine.is_settled(), engine.last_step().predicted_seconds)
        };
        let steps: Vec<(bool, f64)> = (0..6).map(&mut step).collect();
        // Predictions are corrected in both, within the six; what is planned again is no plan of before.
        assert!(steps[5].1 < steps[0].1 / 2.0, "{steps:?}");
        let unsettled = steps[1..].iter().filter(|(settled, _)| !settled).count();
        assert_eq!(unsettled > 0, follow, "{steps:?}");
    }
}
