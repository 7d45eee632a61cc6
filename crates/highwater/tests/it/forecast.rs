//! What a dry run says about a step.

use crate::models::SMALL_GPT;
use highwater::optim::{AdamW, AdamWOptions, Optimizer, clip_grad_norm_};
use highwater::plan::Choice;
use highwater::{Engine, Forecast};

/// Plans a step on so many batches, perhaps with the losses read before backward, and with clipping.
fn plan(budget: u64, batches: usize, read: bool, clip: bool) -> Forecast {
    let engine = Engine::builder().dry_run().arena(budget).seed(11);
    let engine = engine.build().unwrap();
    let model = (SMALL_GPT.make)(&engine).unwrap();
    let parameters = model.sets().concat();
    let mut adamw = AdamW::new(parameters.clone(), AdamWOptions::default()).unwrap();
    let mut step = || {
        for _ in 0..batches {
            let loss = model.losses(0, 4)?.remove(0);
            if read {
                loss.item()?;
            }
            loss.backward()?;
        }
        if clip {
            clip_grad_norm_(&parameters, 1.0)?;
        }
        adamw.step()
    };
    // What does not fit is told all the same.
    let _ = step();
    engine.forecast().expect("a step was planned")
}

#[test]
fn every_byte_at_the_peak_has_a_holder() {
    let plenty = plan(1 << 40, 1, false, false);
    for budget in [plenty.peak_bytes, plenty.floor_bytes] {
        let f = plan(budget, 1, false, false);
        assert!(f.fits && f.plans == 1);
        for (held, bytes) in [(&f.peak_held, f.peak_bytes), (&f.floor_held, f.floor_bytes)] {
            let sum: u64 = held.kinds.iter().map(|holder| holder.bytes).sum();
            assert_eq!(sum, bytes);
            let layers: u64 = held.layers.iter().map(|layer| layer.bytes).sum();
            let state: u64 = held.layers.iter().map(|layer| layer.state_bytes).sum();
            let plan: u64 = held.operations.iter().map(|holder| holder.bytes).sum();
            assert_eq!(layers, state + plan);
            assert!(layers <= bytes && plan > 0);
        }
    }
}

#[test]
fn decisions_cost_what_is_recomputed() {
    let plenty = plan(1 << 40, 1, false, false);
    let least = plan(plenty.floor_bytes, 1, false, false);
    let again = |f: &Forecast| -> (u32, f64) {
        let again = f.decisions.iter().filter(|d| d.choice == Choice::Recompute);
        again.fold((0, 0.0), |sum, d| (sum.0 + d.times, sum.1 + d.seconds))
    };
    assert_eq!(again(&plenty), (0, 0.0));
    let (times, seconds) = again(&least);
    assert!(times > 0 && times == least.recomputed_nodes);
    assert!((seconds - least.recompute_seconds).abs() < 1e-9);
    let slower = least.seconds_per_step - plenty.seconds_per_step;
    assert!((slower - seconds).abs() < 1e-9);
}

#[test]
fn a_step_of_several_plans_is_told_whole() {
    let whole = plan(1 << 40, 1, false, false);
    let read = plan(1 << 40, 1, true, false);
    assert!(read.plans == 2 && whole.plans == 1);
    // The second plan goes on where the first stopped.
    let difference = (read.seconds_per_step / whole.seconds_per_step - 1.0).abs();
    assert!(
        difference < 0.05,
        "{} and {}",
        read.seconds_per_step,
        whole.seconds_per_step
    );
    let three = plan(1 << 40, 3, false, true);
    assert!(three.plans >= 3 && three.floor_bytes > whole.floor_bytes);
    assert!(three.seconds_per_step > 2.5 * whole.seconds_per_step);
    let least = |f: &Forecast| f.curve.last().map(|price| price.bytes);
    assert!(least(&three).is_some_and(|bytes| bytes >= three.floor_bytes));
}

#[test]
fn a_refused_step_says_what_it_would_take() {
    let whole = plan(1 << 40, 1, false, false);
    let refused = plan(whole.floor_bytes - 1, 1, false, false);
    assert!(!refused.fits);
    assert_eq!(refused.floor_bytes, whole.floor_bytes);
    assert_eq!(refused.floor_at, whole.floor_at);
}

/// The reserve is a sum of the nodes of the step at hand: what came before does not move a floor.
#[test]
fn the_reserve_is_for_the_graph_at_hand() {
    let engine = Engine::builder().memory(1 << 30).dry_run().build().unwrap();
    let reserve_of = |nodes: usize| {
        let mut x = engine.tensor(&[0.5; 8], [8]).unwrap();
        for _ in 0..nodes {
            x = x.gelu().unwrap();
        }
        x.sum().unwrap().item().unwrap();
        engine.reserve_bytes()
    };
    let small = reserve_of(10);
    let large = reserve_of(2_000);
    assert!(large > small + (4 << 20), "{small} and {large}");
    assert_eq!(reserve_of(10), small);
}
