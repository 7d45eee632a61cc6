//! Room that others have taken: cells go below memory for what comes later, holes on a disk are closed.

use super::disks::{Fault, Script, Scripted};
use super::{DISK, WIDTHS, floor, on_disk};
use crate::models::{Layers, Random};
use crate::share::some;
use crate::train::{PAGE, PLAIN};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Parameter, Result, Tensor};
use std::sync::Arc;

/// A model, trained with Adam a step at a time.
struct Trained {
    model: Layers,
    adamw: AdamW,
}

impl Trained {
    fn new(engine: &Engine) -> Self {
        let model = Layers::new(engine, &WIDTHS).unwrap();
        let adamw = AdamW::new(model.parameters(), AdamWOptions::default()).unwrap();
        Self { model, adamw }
    }

    fn step(&mut self, index: u64) -> f32 {
        let loss = self.model.loss(index, 2).unwrap();
        loss.backward().unwrap();
        self.adamw.step().unwrap();
        loss.item().unwrap()
    }
}

/// What `run` answers in memory it answers from disk too, at the floor of a step and what is there beside
/// it.
fn same(beside: u64, run: impl Fn(&Engine) -> Vec<f32>) {
    let expected = run(&Engine::builder().seed(11).build().unwrap());
    let least = floor(PLAIN) + beside;
    let engine = on_disk(least).seed(11).build().unwrap();
    assert_eq!(run(&engine), expected, "{least}");
    assert!(engine.tiers().device.most_bytes <= least);
}

#[test]
fn for_inputs_that_come_when_all_has_its_place() {
    same((200 << 10) + PAGE, |engine| {
        let mut trained = Trained::new(engine);
        let mut seen = vec![trained.step(0), trained.step(1)];
        let values = Random(5).values(50_000);
        let input: Tensor = engine.tensor(&values, [50_000]).unwrap();
        seen.push(trained.step(2));
        seen.push(input.sum().unwrap().item().unwrap());
        drop(input);
        seen.extend((3..5).map(|index| trained.step(index)));
        seen
    });
}

#[test]
fn for_another_model() {
    // Biases are too small to move.
    same(16 * PAGE, |engine| {
        let mut first = Trained::new(engine);
        let mut seen: Vec<f32> = (0..2).map(|index| first.step(index)).collect();
        let mut second = Trained::new(engine);
        seen.extend((2..4).map(|index| second.step(index)));
        seen.extend((4..6).flat_map(|index| [first.step(index), second.step(index)]));
        seen
    });
}

#[test]
fn for_a_weight_that_is_read_in_the_middle_of_a_step() {
    same(0, |engine| {
        let mut trained = Trained::new(engine);
        let mut seen = Vec::new();
        for index in 0..3 {
            let loss = trained.model.loss(index, 2).unwrap();
            seen.push(loss.item().unwrap());
            for parameter in trained.model.parameters() {
                seen.push(parameter.to_vec::<f32>().unwrap().iter().sum());
            }
            loss.backward().unwrap();
            trained.adamw.step().unwrap();
        }
        seen
    });
}

/// A parameter of random values.
fn filled(engine: &Engine, seed: u64, count: usize) -> Result<Parameter> {
    let values = Random(seed).values(count);
    Parameter::new(engine, [count], |own| own.copy_from_slice(&values))
}

#[test]
fn for_a_large_cell_after_small_ones() {
    let engine = on_disk(1200 << 10).build().unwrap();
    let small = (0..40).map(|i| filled(&engine, i, 20_000).unwrap());
    let small: Vec<Parameter> = small.collect();
    let large = filled(&engine, 1, 200_000).unwrap();
    assert_eq!(large.to_vec::<f32>().unwrap(), Random(1).values(200_000));
    for (i, small) in (0..).zip(small) {
        assert_eq!(small.to_vec::<f32>().unwrap(), Random(i).values(20_000));
    }
}

/// What was there for a moment is forgotten: cells that made room for it come back.
#[test]
fn for_an_input_that_is_dropped_again() {
    let engine = on_disk(1650 << 10).seed(11).build().unwrap();
    let mut trained = Trained::new(&engine);
    for index in 0..5 {
        trained.step(index);
    }
    assert_eq!(engine.last_step().io.bytes_read, 0);
    drop(engine.tensor(&vec![1.0; 150_000], [150_000]).unwrap());
    for index in 5..8 {
        trained.step(index);
    }
    assert_eq!(engine.last_step().io.bytes_read, 0);
}

/// What cannot fit whoever goes moves nobody.
#[test]
fn for_more_than_there_is() {
    let engine = on_disk(3 << 20).build().unwrap();
    let small: Vec<Parameter> = (0..10)
        .map(|i| filled(&engine, i, 20_000).unwrap())
        .collect();
    let before = engine.tiers();
    assert!(engine.tensor(&vec![1.0; 1_000_000], [1_000_000]).is_err());
    assert_eq!(
        engine.tiers().disk.unwrap().bytes,
        before.disk.unwrap().bytes
    );
    drop(small);
}

/// Holes are as large as cells.
const EVEN: [usize; 2] = [20_000; 2];

/// A small disk, full of cells, half of which are then dropped: the holes that they leave are together what
/// a large one takes, none of them alone. Answers those that are kept. `elements` are those of cells that
/// are kept, and of those that are dropped.
fn with_holes(disk: &Arc<Scripted>, elements: [usize; 2]) -> (Engine, Vec<Parameter>) {
    let bytes = 6 << 20;
    let builder = Engine::builder()
        .arena(600 << 10)
        .disk_on(disk.clone(), bytes);
    let engine = builder.build().unwrap();
    let mut kept = Vec::new();
    let mut dropped = Vec::new();
    // The first ones stay in memory.
    while let Ok(parameter) = filled(&engine, kept.len() as u64, elements[0]) {
        match filled(&engine, 1000, elements[1]) {
            Ok(other) => dropped.push(other),
            Err(_) => break,
        }
        kept.push(parameter);
    }
    assert!(kept.len() > 15);
    (engine, kept)
}

fn are_as_they_were(kept: &[Parameter]) {
    for (i, kept) in (0..).zip(kept) {
        let values = kept.to_vec::<f32>().unwrap();
        assert_eq!(values, Random(i).values(values.len()));
    }
}

#[test]
fn on_a_disk_with_holes() {
    let (engine, kept) = with_holes(&Arc::new(Scripted::new(DISK, None)), EVEN);
    let large = (0..8).map(|i| filled(&engine, 2000 + i, 50_000).unwrap());
    let large: Vec<Parameter> = large.collect();
    are_as_they_were(&kept);
    let all: Vec<Parameter> = kept.into_iter().chain(large).collect();
    // Values of a step need their area at the end of the disk.
    let mut sgd = Sgd::new(all.clone(), SgdOptions::default()).unwrap();
    let mut loss: Option<Tensor> = None;
    for parameter in &all {
        let part = parameter.sum().unwrap();
        loss = Some(
            loss.map_or(Ok(part.clone()), |loss| loss.add(&part))
                .unwrap(),
        );
    }
    loss.unwrap().backward().unwrap();
    sgd.step().unwrap();
}

/// A call that fails while a cell moves down loses nothing: to a hole that is apart from it, or one that it
/// reaches into.
#[test]
fn on_a_disk_with_holes_that_fails_once() {
    let larger = |engine: &Engine| (0..8).map(|i| filled(engine, 2000 + i, 50_000)).collect();
    for elements in [EVEN, [30_000, 17_000]] {
        let disk = Arc::new(Scripted::new(DISK, None));
        let (engine, kept) = with_holes(&disk, elements);
        let first = disk.calls();
        let made: Vec<Result<Parameter>> = larger(&engine);
        let last = disk.calls();
        assert!(last - first > 40 && made.iter().any(Result::is_ok));
        are_as_they_were(&kept);
        for at in some((first..last).step_by(5)) {
            let (fault, for_good) = (Fault::Broken, false);
            let script = Script::Fault {
                at,
                fault,
                for_good,
            };
            let disk = Arc::new(Scripted::new(DISK, Some(script)));
            let (engine, kept) = with_holes(&disk, elements);
            let _: Vec<Result<Parameter>> = larger(&engine);
            are_as_they_were(&kept);
            // What was stopped goes on.
            let _: Vec<Result<Parameter>> = larger(&engine);
            are_as_they_were(&kept);
        }
    }
}
