//! Cells and values that wait on disk: the same bits as in memory, whatever the budget; and typed errors,
//! never a wrong number, whatever the disk does.

mod corrected;
mod damage;
pub(crate) mod disks;
mod each;
mod faults;
mod forbidden;
mod misuse;
mod room;
mod two_threads;
mod within;

use crate::budget::Make;
use crate::models::{Layers, Model, SKIPS, SMALL_GPT, TWO_OPTIMIZERS, UNET};
use crate::share::some;
use crate::train::{PAGE, PLAIN, Recipe, Trace, assert_same_bits, assert_within, run};
use disks::Scripted;
use highwater::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions};
use highwater::plan::{Plan, Problem};
use highwater::{Builder, Engine, Error, Parameter, Result};
use std::cell::Cell;
use std::sync::Arc;

const DISK: u64 = 64 << 20;
/// Weights of 100 KiB each.
const WIDTHS: [usize; 6] = [160; 6];

fn make(engine: &Engine) -> Result<Box<dyn Model>> {
    Ok(Box::new(Layers::new(engine, &WIDTHS)?))
}

/// A disk in memory, on which all goes well.
fn sound() -> Arc<Scripted> {
    Arc::new(Scripted::new(DISK, None))
}

fn on_disk(budget: u64) -> Builder {
    Engine::builder().arena(budget).disk_on(sound(), DISK)
}

/// The least budget in which a recipe goes through with a disk.
fn floor(recipe: Recipe) -> u64 {
    floor_of(&make, recipe)
}

fn floor_of(make: Make<'_>, recipe: Recipe) -> u64 {
    let mut budget = 64 * PAGE;
    for _ in 0..200 {
        match run(on_disk(budget), make, recipe) {
            Ok(_) => return budget,
            Err(Error::OverBudget { floor_bytes, .. }) => {
                assert!(floor_bytes > budget, "{floor_bytes} of {budget}");
                budget = floor_bytes;
            }
            Err(Error::State { bytes, .. }) => budget += bytes.next_multiple_of(PAGE),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the floor rises again and again");
}

fn bytes_read(trace: &Trace) -> u64 {
    trace
        .reports
        .iter()
        .map(|report| report.io.bytes_read)
        .sum()
}

fn check(recipe: Recipe) {
    check_of(&make, recipe);
}

/// The budget law with a disk.
pub(crate) fn check_of(make: Make<'_>, recipe: Recipe) {
    let plenty = run(Engine::builder(), make, recipe).unwrap();
    let (least, most) = (floor_of(make, recipe), plenty.peak_bytes() + (1 << 20));
    assert!(
        least < plenty.peak_bytes() / 2,
        "{least} of {}",
        plenty.peak_bytes()
    );
    for part in some(0..5) {
        let budget = least + (most - least) * part / 4;
        let what = format!("{recipe:?}, {budget}");
        let trace =
            run(on_disk(budget), make, recipe).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_same_bits(&what, &trace, &plenty);
        assert_within(&what, budget, &trace);
        assert!(
            part > 0 || bytes_read(&trace) > 0,
            "{what}: nothing was moved"
        );
    }
}

#[test]
fn the_budget_law_with_a_disk() {
    check(PLAIN);
}

#[test]
fn the_budget_law_with_a_disk_clipping() {
    check(Recipe {
        clip: true,
        ..PLAIN
    });
}

#[test]
fn the_budget_law_with_a_disk_accumulating() {
    check(Recipe {
        accumulate: 3,
        keep_grads: true,
        ..PLAIN
    });
}

#[test]
fn the_budget_law_with_a_disk_read_early() {
    check(Recipe {
        read_early: true,
        rows: 5,
        ..PLAIN
    });
}

#[test]
fn the_budget_law_in_a_real_file() {
    let folder = tempfile::tempdir().unwrap();
    let plenty = run(Engine::builder(), &make, PLAIN).unwrap();
    let builder = Engine::builder().arena(floor(PLAIN));
    let trace = run(builder.disk(folder.path(), DISK), &make, PLAIN).unwrap();
    assert_same_bits("in a file", &trace, &plenty);
    assert!(bytes_read(&trace) > 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Steps that are alike are planned once.
#[test]
fn where_cells_are_is_settled_by_the_first_step() {
    thread_local! {
        static PLANS: Cell<u32> = const { Cell::new(0) };
    }
    let count = |_: &Problem, _: &Plan| PLANS.set(PLANS.get() + 1);
    for accumulate in some([1, 3]) {
        let budget = floor(Recipe {
            accumulate,
            ..PLAIN
        });
        for budget in [budget, budget + (400 << 10), budget + (900 << 10)] {
            let engine = on_disk(budget).on_plan(count).build().unwrap();
            let model = Layers::new(&engine, &WIDTHS).unwrap();
            let mut adamw = AdamW::new(model.sets().remove(0), AdamWOptions::default()).unwrap();
            let mut plans = Vec::new();
            for step in 0..6 {
                for _ in 0..accumulate {
                    model.loss(step, 2).unwrap().backward().unwrap();
                }
                adamw.step().unwrap();
                plans.push(PLANS.take());
            }
            assert!(
                plans[3..].iter().all(|&new| new == 0),
                "{budget}: {plans:?}"
            );
        }
    }
}

#[test]
fn eager_engines_and_gradients_that_are_held() {
    let train = |builder: Builder, hold: bool| {
        let engine = builder.seed(5).build().unwrap();
        let model = Layers::new(&engine, &WIDTHS).unwrap();
        let parameters = model.sets().remove(0);
        let mut sgd = Sgd::new(parameters.clone(), SgdOptions::default()).unwrap();
        let mut seen = Vec::new();
        for step in 0..3 {
            model.loss(step, 2).unwrap().backward().unwrap();
            let held = hold.then(|| parameters[2].grad().unwrap().keep());
            model.loss(step + 10, 2).unwrap().backward().unwrap();
            sgd.step_keep_grads().unwrap();
            if let Some(held) = held {
                seen.extend(held.to_vec::<f32>().unwrap());
            }
            seen.extend(parameters[4].grad().unwrap().to_vec::<f32>().unwrap());
            sgd.zero_grad();
        }
        seen.extend(parameters[0].to_vec::<f32>().unwrap());
        seen
    };
    let disk = |builder: Builder| builder.disk_on(sound(), DISK);
    let little = || disk(Engine::builder().arena(900 << 10));
    assert!(train(little(), true) == train(Engine::builder(), true));
    let eager = disk(Engine::eager().arena(4 << 20));
    assert!(train(eager, false) == train(Engine::builder(), false));
}

#[test]
fn frozen_weights_are_only_read() {
    let train = |builder: Builder| {
        let engine = builder.seed(5).build().unwrap();
        let model = Layers::new(&engine, &WIDTHS).unwrap();
        for layer in &model.linear {
            layer.weight.set_requires_grad(false);
        }
        let trained = model.sets().remove(0);
        let trained = trained
            .into_iter()
            .filter(|p| p.shape().len() == 1)
            .collect();
        let mut sgd = Sgd::new(trained, SgdOptions::default()).unwrap();
        let mut seen = Vec::new();
        for step in 0..3 {
            let loss = model.loss(step, 2).unwrap();
            loss.backward().unwrap();
            sgd.step().unwrap();
            seen.push(loss.item().unwrap());
        }
        (seen, engine.totals())
    };
    let plenty = train(Engine::builder()).0;
    let disk = Engine::builder().arena(360 << 10).disk_on(sound(), DISK);
    let (seen, totals) = train(disk.forbid_disk_writes());
    assert_eq!(seen, plenty);
    assert!(totals.io.bytes_read > 0);
    assert_eq!(totals.io.bytes_written, 0);
    assert!((0.0..=1.0).contains(&totals.io.overlap()));
}

/// Their cells are too small to move; values of the step are not.
#[test]
fn samples_keep_their_bits_beside_a_disk() {
    for sample in some([SMALL_GPT, TWO_OPTIMIZERS, SKIPS, UNET]) {
        let recipe = Recipe {
            clip: true,
            accumulate: 2,
            ..PLAIN
        };
        let plenty = run(Engine::builder(), &sample.make, recipe).unwrap();
        let least = crate::train::floor(&sample.make, recipe, &plenty);
        let most = plenty.peak_bytes() + (64 << 10);
        for budget in [least + 16 * PAGE, u64::midpoint(least, most), most] {
            let what = format!("{}, {budget}", sample.name);
            let trace = run(on_disk(budget), &sample.make, recipe)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_same_bits(&what, &trace, &plenty);
            assert_within(&what, budget, &trace);
        }
    }
}

#[test]
fn a_loss_that_is_no_number_leaves_cells_as_they_were() {
    let engine = on_disk(floor(PLAIN) + (60 << 10)).seed(5).build().unwrap();
    let model = Layers::new(&engine, &WIDTHS).unwrap();
    let mut adamw = AdamW::new(model.sets().remove(0), AdamWOptions::default()).unwrap();
    let step = |adamw: &mut AdamW| {
        model.loss(1, 2).and_then(|loss| loss.backward())?;
        adamw.step()
    };
    step(&mut adamw).unwrap();
    let values = || -> Vec<Vec<f32>> {
        let parameters = model.sets().remove(0);
        parameters.iter().map(|p| p.to_vec().unwrap()).collect()
    };
    let bias = &model.linear[3].bias.as_ref().unwrap();
    let sound = bias.to_vec::<f32>().unwrap();
    bias.with_values_mut(|own| own[0] = f32::INFINITY).unwrap();
    let before = values();
    let error = step(&mut adamw).unwrap_err();
    assert!(matches!(error, Error::NonFinite { .. }), "{error}");
    assert!(error.to_string().contains("linear"), "{error}");
    assert_eq!(values(), before);
    bias.copy_from_slice(&sound).unwrap();
    step(&mut adamw).unwrap();
}

/// A loop that evaluates in between, at another length, with another optimizer.
fn lively(engine: &Engine) -> Result<Vec<f32>> {
    let model = Layers::new(engine, &WIDTHS)?;
    let options = SgdOptions {
        lr: 0.1,
        momentum: 0.9,
        ..SgdOptions::default()
    };
    let mut sgd = Sgd::new(model.sets().remove(0), options)?;
    let mut seen = Vec::new();
    for step in 0..6 {
        let rows = if step % 3 == 2 { 7 } else { 2 };
        let loss = model.loss(step, rows)?;
        loss.backward()?;
        sgd.step()?;
        seen.push(loss.item()?);
        let held_out = highwater::no_grad(|| model.loss(100, 3))?;
        seen.push(held_out.item()?);
        seen.extend(model.linear[1].weight.to_vec::<f32>()?);
    }
    // State goes out and comes back in.
    let saved: Vec<Vec<u8>> = (sgd.state_dict().iter())
        .map(|(_, moment)| moment.with_bytes(<[u8]>::to_vec))
        .collect::<Result<_>>()?;
    for ((_, moment), bytes) in sgd.state_dict().iter().zip(saved.iter().rev()) {
        moment.with_bytes_mut(|own| {
            let count = own.len().min(bytes.len());
            own[..count].copy_from_slice(&bytes[..count]);
        })?;
    }
    model.loss(7, 2)?.backward()?;
    sgd.step()?;
    for parameter in model.sets().remove(0) {
        seen.extend(parameter.to_vec::<f32>()?);
    }
    Ok(seen)
}

#[test]
fn evaluations_other_lengths_and_loading() {
    let plenty = lively(&Engine::builder().seed(3).build().unwrap()).unwrap();
    for budget in [700 << 10, 1 << 20, 2 << 20, 8 << 20] {
        let engine = on_disk(budget).seed(3).build().unwrap();
        let seen = lively(&engine).unwrap_or_else(|error| panic!("{budget}: {error}"));
        assert!(seen == plenty, "{budget}");
    }
}

/// Parameters of 256 KiB, ten times what the budget holds.
fn many(engine: &Engine) -> Result<Vec<Parameter>> {
    let fill = |i: usize| {
        let parameter = Parameter::new(engine, [1 << 16], |to| {
            for (j, x) in to.iter_mut().enumerate() {
                *x = (i * 70_000 + j) as f32;
            }
        })?;
        parameter.set_name(&format!("many.{i}"));
        Ok(parameter)
    };
    (0..40).map(fill).collect()
}

#[test]
fn more_cells_than_memory_are_read_back() {
    let engine = on_disk(1 << 20).build().unwrap();
    let cells = many(&engine).unwrap();
    assert!(engine.state_bytes() <= 1 << 20);
    assert!(engine.disk_bytes() >= 36 << 18);
    for (i, cell) in cells.iter().enumerate() {
        let values = cell.to_vec::<f32>().unwrap();
        let right = |(j, &x): (usize, &f32)| x == (i * 70_000 + j) as f32;
        assert!(values.iter().enumerate().all(right), "{i}");
        assert!(engine.state_bytes() <= 1 << 20);
    }
    // Two at once, and one that is written.
    let same = cells[30].with_bytes(|a| cells[31].with_bytes(|b| a == b).unwrap());
    assert!(!same.unwrap());
    cells[35].with_values_mut(|own| own[5] = -1.0).unwrap();
    assert_eq!(
        cells[35].to_vec::<f32>().unwrap()[4..6],
        [35.0 * 70_000.0 + 4.0, -1.0]
    );
    let before = engine.disk_bytes();
    drop(cells);
    assert!(engine.state_bytes() <= 1 << 20);
    // What nobody holds any more goes when the engine is next looked at.
    engine.totals();
    assert!(engine.disk_bytes() < before);
}

#[test]
fn zeros_are_neither_written_nor_read() {
    let disk = sound();
    let engine = Engine::builder()
        .arena(400 << 10)
        .disk_on(disk.clone(), DISK);
    let engine = engine.build().unwrap();
    let model = Layers::new(&engine, &WIDTHS).unwrap();
    let written = disk.calls();
    let adamw = AdamW::new(model.sets().remove(0), AdamWOptions::default()).unwrap();
    assert!(engine.disk_bytes() > 10 * (100 << 10));
    for (_, moment) in adamw.state_dict() {
        assert!(moment.to_vec::<f32>().unwrap().iter().all(|&x| x == 0.0));
    }
    assert_eq!(disk.calls(), written);
}

#[test]
fn a_full_disk_says_so() {
    let engine = Engine::builder().arena(1 << 20).disk_on(sound(), 2 << 20);
    let error = many(&engine.build().unwrap()).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let build = |builder: Builder| builder.disk("/nowhere/at/all", DISK).build();
    let error = build(Engine::builder()).unwrap_err().to_string();
    assert!(
        error.contains("/nowhere/at/all") && error.contains("hint"),
        "{error}"
    );
    // A dry run opens nothing.
    build(Engine::builder().dry_run()).unwrap();
}

#[test]
fn a_dry_run_plans_what_a_run_does() {
    let budget = floor(PLAIN);
    let plan = |builder: Builder| {
        let engine = builder.seed(11).prices(0).build().unwrap();
        let model = Layers::new(&engine, &WIDTHS).unwrap();
        let mut adamw = AdamW::new(model.sets().remove(0), AdamWOptions::default()).unwrap();
        for step in 0..2 {
            model.loss(step, 2).unwrap().backward().unwrap();
            adamw.step().unwrap();
        }
        engine.forecast().unwrap()
    };
    let (ran, dry) = (plan(on_disk(budget)), plan(on_disk(budget).dry_run()));
    assert_eq!(ran.plan, dry.plan);
    assert_eq!(
        (ran.peak_bytes, ran.floor_bytes),
        (dry.peak_bytes, dry.floor_bytes)
    );
    assert!(ran.peak_bytes <= budget);
}
