//! Frozen parameters that are parts of files: the same bits in any budget, dropped and read again, and typed errors
//! for whatever happens to the file. Nothing is written anywhere.

use crate::models::Random;
use crate::share::some;
use crate::train::PAGE;
use highwater::memory::files::{Fault, FaultKind, MemoryFiles, ScriptedFiles};
use highwater::memory::{FilePart, Files, SharedFile};
use highwater::nn::Linear;
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::plan::{Plan, Problem};
use highwater::{Builder, Engine, Error, Module, Result, Tensor, Tier, no_grad, skip_init};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const FILE: &str = "/weights";

/// What a program is made of.
#[derive(Debug, Clone)]
struct Recipe {
    seed: u64,
    /// Widths of the layers, one more than there are of them.
    widths: Vec<usize>,
    /// Whether each layer is a part of the file; the others are trained.
    in_file: Vec<bool>,
    /// The layer of the file that is overwritten after a step, if one is.
    overwritten: Option<usize>,
    /// The layer of the file that trains from the second step on, if one does.
    thawed: Option<usize>,
    rows: usize,
}

impl Recipe {
    fn random(seed: u64) -> Self {
        let mut random = Random(seed);
        let layers = 2 + random.below(5);
        let wide = |random: &mut Random| 100 + random.below(120);
        let mut in_file: Vec<bool> = (0..layers).map(|_| random.below(4) > 0).collect();
        let (one, other) = (random.below(layers), 1 + random.below(layers - 1));
        (in_file[one], in_file[(one + other) % layers]) = (true, false);
        let of_file: Vec<usize> = (0..layers).filter(|&i| in_file[i]).collect();
        let mut some = |share| {
            let one = of_file[random.below(of_file.len())];
            (random.below(share) == 0).then_some(one)
        };
        let (overwritten, thawed) = (some(3), some(4));
        Self {
            seed,
            widths: (0..=layers).map(|_| wide(&mut random)).collect(),
            in_file,
            overwritten,
            thawed,
            rows: 1 + random.below(40),
        }
    }

    /// The file's weights, one after the other at any offset.
    fn weights(&self) -> Vec<(u64, Vec<f32>)> {
        let mut at = 0;
        let pairs = self.widths.windows(2).enumerate();
        pairs
            .map(|(i, pair)| {
                let mut random = Random(self.seed ^ (i as u64 + 1));
                at += random.below(9) as u64;
                let weight = random.values(pair[0] * pair[1]);
                let weight: Vec<f32> = weight.iter().map(|x| x / 8.0).collect();
                let start = at;
                at += 4 * weight.len() as u64;
                (start, weight)
            })
            .collect()
    }

    fn write(&self, files: &dyn Files) {
        let mut bytes = Vec::new();
        for (at, weight) in self.weights() {
            bytes.resize(at as usize, 0xee);
            bytes.extend_from_slice(bytemuck::cast_slice(&weight));
        }
        let mut file = files.create(Path::new(FILE)).unwrap();
        file.write_all(&bytes).unwrap();
        file.sync_all().unwrap();
    }

    fn files(&self) -> MemoryFiles {
        let files = MemoryFiles::new();
        self.write(&files);
        files
    }

    fn layers(&self, engine: &Engine, files: &dyn Files, parts: bool) -> Result<Vec<Linear>> {
        let file = SharedFile::new(files.open(Path::new(FILE))?);
        let weights = self.weights();
        let pairs = self.widths.windows(2).enumerate();
        pairs
            .map(|(i, pair)| {
                if !self.in_file[i] {
                    return Linear::new(engine, pair[0], pair[1], true);
                }
                let layer = skip_init(|| Linear::new(engine, pair[0], pair[1], false))?;
                layer.weight.set_requires_grad(false);
                let (at, weight) = &weights[i];
                if parts {
                    let part = FilePart::new(file.clone(), *at, 4 * weight.len() as u64);
                    layer.weight.read_from(part)?;
                } else {
                    layer.weight.copy_from_slice(weight)?;
                }
                Ok(layer)
            })
            .collect()
    }

    /// Losses, what is computed without history, and all weights at the end.
    fn run(&self, engine: &Engine, files: &dyn Files, parts: bool) -> Result<Vec<u32>> {
        let layers = self.layers(engine, files, parts)?;
        let parameters = layers.iter().flat_map(Module::parameters).collect();
        let mut adamw = AdamW::new(parameters, AdamWOptions::default())?;
        let mut bits = Vec::new();
        for step in 0..3 {
            if step % 2 == 0 {
                let told = no_grad(|| self.loss(engine, &layers, 50 + step))?;
                bits.push(told.item()?.to_bits());
            }
            let loss = self.loss(engine, &layers, step)?;
            loss.backward()?;
            adamw.step()?;
            adamw.zero_grad();
            bits.push(loss.item()?.to_bits());
            if let (0, Some(i)) = (step, self.thawed) {
                layers[i].weight.set_requires_grad(true);
            }
            if let (1, Some(i)) = (step, self.overwritten) {
                let values = Random(7).values(layers[i].weight.shape().numel());
                layers[i].weight.copy_from_slice(&values)?;
            }
        }
        for layer in &layers {
            bits.extend(layer.weight.to_vec::<f32>()?.iter().map(|x| x.to_bits()));
        }
        Ok(bits)
    }

    fn loss(&self, engine: &Engine, layers: &[Linear], index: u64) -> Result<Tensor> {
        let data = Random(self.seed ^ (99 + index)).values(self.rows * self.widths[0]);
        let mut x = engine.tensor(&data, [self.rows, self.widths[0]])?;
        for layer in layers {
            x = layer.forward(&x)?.gelu()?;
        }
        x.square()?.mean()
    }

    fn plain(&self) -> Vec<u32> {
        let engine = Engine::builder().seed(5).build().unwrap();
        self.run(&engine, &self.files(), false).unwrap()
    }
}

static READ: AtomicU64 = AtomicU64::new(0);

fn count(_: &Problem, plan: &Plan) {
    assert_eq!(plan.disk.written_bytes, 0);
    READ.fetch_add(plan.disk.read_bytes, Ordering::Relaxed);
}

fn small(budget: u64) -> Builder {
    Engine::builder().seed(5).arena(budget).threads(2).files()
}

/// The least budget of a program, and what it comes to there.
fn least(recipe: &Recipe, parts: bool) -> (u64, Vec<u32>) {
    let mut budget = 16 * PAGE;
    for _ in 0..200 {
        let engine = small(budget).build().unwrap();
        match recipe.run(&engine, &recipe.files(), parts) {
            Ok(bits) => return (budget, bits),
            Err(Error::OverBudget { floor_bytes, .. }) => budget = floor_bytes.max(budget + PAGE),
            Err(Error::State { bytes, .. }) => budget += bytes.next_multiple_of(PAGE),
            Err(other) => panic!("{recipe:?} at {budget}: {other}"),
        }
    }
    panic!("the floor rises again and again");
}

#[test]
fn any_program_has_the_same_bits_in_any_budget() {
    let before = READ.load(Ordering::Relaxed);
    for seed in some(0..24) {
        let recipe = Recipe::random(seed);
        let expected = recipe.plain();
        let (floor, bits) = least(&recipe, true);
        assert!(bits == expected, "{recipe:?} at its floor {floor}");
        for kib in [40, 200, 600, 4000] {
            let engine = small(floor + (kib << 10)).on_plan(count).build().unwrap();
            match recipe.run(&engine, &recipe.files(), true) {
                Ok(bits) => assert!(bits == expected, "{recipe:?} at {floor} + {kib} KiB"),
                // A later step of several plans may need more than the least that one was found for.
                Err(Error::OverBudget { .. } | Error::State { .. }) if kib < 600 => {}
                Err(error) => panic!("{recipe:?} at {floor} + {kib} KiB: {error}"),
            }
            let most = engine.memory_stats()["allocated_bytes.all.peak"];
            assert!(most <= floor + (kib << 10), "{most}");
        }
    }
    assert!(READ.load(Ordering::Relaxed) > before);
}

fn many_layers() -> Recipe {
    Recipe {
        seed: 3,
        widths: vec![200; 11],
        in_file: (0..10).map(|i| i != 4).collect(),
        overwritten: None,
        thawed: None,
        rows: 8,
    }
}

#[test]
fn frozen_weights_need_not_fit() {
    let recipe = many_layers();
    let (floor, bits) = least(&recipe, true);
    let (held, same) = least(&recipe, false);
    assert_eq!(bits, same);
    // Nine weights of 156 KiB: at most three are there at once, beside what is trained.
    assert!(floor + 6 * (156 << 10) <= held, "{floor} beside {held}");
}

#[test]
fn a_dry_run_knows_what_files_have() {
    let recipe = many_layers();
    let (floor, _) = least(&recipe, true);
    let forecast = |budget: u64| {
        let engine = small(budget).dry_run().build().unwrap();
        let layers = recipe.layers(&engine, &recipe.files(), true).unwrap();
        let parameters = layers.iter().flat_map(Module::parameters).collect();
        let mut adamw = AdamW::new(parameters, AdamWOptions::default()).unwrap();
        let loss = recipe.loss(&engine, &layers, 0).unwrap();
        loss.backward().unwrap();
        // What does not fit is told all the same.
        let _ = adamw.step();
        engine.forecast().unwrap()
    };
    assert!(forecast(floor + 16 * PAGE).fits);
    assert!(!forecast(floor / 2).fits);
}

#[test]
fn a_disk_takes_nothing_of_what_a_file_has() {
    let recipe = many_layers();
    let expected = recipe.plain();
    let folder = tempfile::tempdir().unwrap();
    let (floor, _) = least(&recipe, true);
    for budget in [floor, floor + (300 << 10)] {
        let engine = small(budget).disk(folder.path(), 32 << 20).build().unwrap();
        let bits = recipe.run(&engine, &recipe.files(), true).unwrap();
        assert_eq!(bits, expected);
        let most = engine.tiers().disk.unwrap().most_bytes;
        // The one that trains, its gradient and moments, and values of a step.
        assert!(most < 1 << 20, "{most}");
    }
}

#[test]
fn a_file_that_changed_is_told_and_the_engine_goes_on_with_what_it_was() {
    let recipe = many_layers();
    let (floor, expected) = least(&recipe, true);
    let files = recipe.files();
    let engine = small(floor).build().unwrap();
    let layers = recipe.layers(&engine, &files, true).unwrap();
    let told = |layers: &[Linear]| no_grad(|| recipe.loss(&engine, layers, 50))?.item();
    let other = Recipe {
        seed: 4,
        ..recipe.clone()
    };
    other.write(&files);
    let error = told(&layers).unwrap_err();
    assert!(matches!(error, Error::Disk { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains("/weights: the file was changed"),
        "{message}"
    );
    assert!(message.contains("put the file back"), "{message}");
    recipe.write(&files);
    assert_eq!(told(&layers).unwrap().to_bits(), expected[0]);
}

#[test]
fn a_file_that_fails_gives_an_error_or_the_right_numbers() {
    let recipe = Recipe {
        widths: vec![200; 6],
        in_file: vec![true, true, false, true, true],
        ..many_layers()
    };
    let (floor, expected) = least(&recipe, true);
    let inner: Arc<dyn Files> = Arc::new(recipe.files());
    let calls = {
        let files = ScriptedFiles::new(Arc::clone(&inner), None);
        let engine = small(floor).build().unwrap();
        recipe.run(&engine, &files, true).unwrap();
        files.calls().len() as u64
    };
    assert!(calls > 12, "{calls}");
    let (mut failed, mut passed) = (0, 0);
    for at in some(0..calls) {
        for kind in [
            FaultKind::InputOutput,
            FaultKind::Short,
            FaultKind::Interruption,
        ] {
            let fault = Fault {
                at,
                persistent: false,
                kind,
            };
            let files = ScriptedFiles::new(Arc::clone(&inner), Some(fault));
            let engine = small(floor).build().unwrap();
            match recipe.run(&engine, &files, true) {
                Ok(bits) => {
                    assert_eq!(bits, expected, "{kind:?} at call {at}");
                    passed += 1;
                }
                Err(Error::Disk { .. } | Error::Files(_)) => {
                    assert_eq!(kind, FaultKind::InputOutput, "at call {at}");
                    failed += 1;
                }
                Err(other) => panic!("{kind:?} at call {at}: {other}"),
            }
        }
    }
    assert!(failed > 0 && passed > failed, "{failed} of {passed}");
}

#[test]
fn a_part_of_another_length_is_refused() {
    let recipe = many_layers();
    let files = recipe.files();
    for builder in [Engine::builder(), small(8 << 20)] {
        let engine = builder.build().unwrap();
        let layer = skip_init(|| Linear::new(&engine, 200, 200, false)).unwrap();
        layer.weight.set_requires_grad(false);
        let file = SharedFile::new(files.open(Path::new(FILE)).unwrap());
        let error = layer.weight.read_from(FilePart::new(file.clone(), 0, 8));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("8 bytes of a file for"), "{error}");
        let behind = FilePart::new(file, 1 << 30, 160_000);
        let error = layer.weight.read_from(behind).unwrap_err();
        assert!(matches!(error, Error::Files(_)), "{error}");
    }
}

/// A layer of a file with these weights, on an engine.
fn one_layer(engine: &Engine, files: &dyn Files, at: u64) -> Linear {
    let layer = skip_init(|| Linear::new(engine, 200, 200, false)).unwrap();
    layer.weight.set_requires_grad(false);
    let file = SharedFile::new(files.open(Path::new(FILE)).unwrap());
    layer
        .weight
        .read_from(FilePart::new(file, at, 160_000))
        .unwrap();
    layer
}

#[test]
fn what_is_written_is_never_the_files_again() {
    let recipe = many_layers();
    let files = recipe.files();
    let folder = tempfile::tempdir().unwrap();
    let on_disk = |builder: Builder| builder.disk(folder.path(), 8 << 20);
    let builders = [
        small(4 << 20),
        on_disk(small(4 << 20)),
        on_disk(small(4 << 20)).host_memory(4 << 20),
    ];
    for (i, builder) in builders.into_iter().enumerate() {
        let engine = builder.build().unwrap();
        let layer = one_layer(&engine, &files, 0);
        let written = Random(1).values(40_000);
        let places = [Tier::Device, Tier::Disk, Tier::Host];
        for before in places {
            for after in places {
                let part = FilePart::new(
                    SharedFile::new(files.open(Path::new(FILE)).unwrap()),
                    0,
                    160_000,
                );
                layer.weight.read_from(part).unwrap();
                if layer.weight.to(before).is_err() {
                    assert!(i < 2 && before == Tier::Host);
                    continue;
                }
                layer.weight.copy_from_slice(&written).unwrap();
                // Where no disk is, what was written stays in memory.
                let moved = layer.weight.to(after);
                assert!(moved.is_ok() || i < 2, "{before:?} to {after:?}");
                let _ = layer.weight.to(Tier::Device);
                assert_eq!(layer.weight.to_vec::<f32>().unwrap(), written);
            }
        }
    }
}

#[test]
fn no_disk_is_spoken_of_where_there_are_files_alone() {
    let engine = small(4 << 20).build().unwrap();
    let layer = one_layer(&engine, &many_layers().files(), 0);
    let other = Linear::new(&engine, 200, 200, false).unwrap();
    layer.weight.to(Tier::Disk).unwrap();
    assert_eq!(layer.weight.tier().unwrap(), Tier::Disk);
    let error = other.weight.to(Tier::Disk).unwrap_err();
    assert!(matches!(error, Error::Usage { .. }), "{error}");
    assert_eq!(engine.disk_rates(), None);
    assert_eq!(engine.tiers().disk, None);
}

#[test]
fn what_could_not_be_read_can_be_written() {
    let recipe = many_layers();
    let files = recipe.files();
    let engine = small(4 << 20).build().unwrap();
    let layer = one_layer(&engine, &files, 0);
    layer.weight.to(Tier::Disk).unwrap();
    let other = Recipe {
        seed: 4,
        ..recipe.clone()
    };
    other.write(&files);
    assert!(layer.weight.to_vec::<f32>().is_err());
    let written = Random(1).values(40_000);
    layer.weight.copy_from_slice(&written).unwrap();
    assert_eq!(layer.weight.to_vec::<f32>().unwrap(), written);
}

#[test]
fn moments_find_room_where_evaluations_filled_memory() {
    let recipe = many_layers();
    let files = recipe.files();
    // A few weights at once, beside one that trains with its gradient and moments.
    let engine = small(1 << 20).build().unwrap();
    let layers = recipe.layers(&engine, &files, true).unwrap();
    for index in 0..2 {
        no_grad(|| recipe.loss(&engine, &layers, index))
            .unwrap()
            .item()
            .unwrap();
    }
    let parameters = layers.iter().flat_map(Module::parameters).collect();
    let mut adamw = AdamW::new(parameters, AdamWOptions::default()).unwrap();
    for step in 0..2 {
        // Gradients add up in a cell.
        for part in 0..2 {
            let loss = recipe.loss(&engine, &layers, 2 * step + part).unwrap();
            loss.backward().unwrap();
            no_grad(|| recipe.loss(&engine, &layers, 9))
                .unwrap()
                .item()
                .unwrap();
        }
        adamw.step().unwrap();
        adamw.zero_grad();
    }
}

#[test]
fn a_disk_that_is_smaller_than_the_file_refuses_nothing() {
    let recipe = many_layers();
    let expected = recipe.plain();
    let folder = tempfile::tempdir().unwrap();
    let (floor, _) = least(&recipe, true);
    for bytes in [4096, 64 << 10, 400 << 10] {
        let builder = small(floor + (64 << 10)).disk(folder.path(), bytes);
        let engine = builder.build().unwrap();
        let bits = recipe.run(&engine, &recipe.files(), true).unwrap();
        assert_eq!(bits, expected, "{bytes}");
    }
}
