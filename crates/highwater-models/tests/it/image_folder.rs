//! A model of torchvision's on folders of pictures: it learns, goes on where it was stopped, and keeps its bits under
//! any budget.

use highwater::data::images::{
    CenterCrop, Compose, ImageFolder, Normalize, RandomCrop, RandomHorizontalFlip, ToTensor,
};
use highwater::data::{Cursor, DataLoader, Dataset, Draws, LoaderOptions, Subset, ToTensors};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::{Engine, Module, no_grad};
use highwater_models::vision::{DenseNet, DenseNetConfig, ImageClassifier, top_k_accuracy};
use std::collections::BTreeMap;
use std::path::Path;

const STEPS: usize = 24;
const SIDE: u32 = 36;

/// Pictures of three classes, which differ by where they are bright.
fn paint(root: &Path) {
    for class in 0..3_u64 {
        let folder = root.join(["left", "middle", "top"][class as usize]);
        std::fs::create_dir_all(&folder).unwrap();
        for i in 0..20 {
            let mut draws = Draws::new(7, class, i);
            let pixel = |p: u32| {
                let (x, y) = (p % SIDE, p / SIDE);
                let inside = [
                    !(9..=26).contains(&x),
                    x.abs_diff(18) + y.abs_diff(18) < 14,
                    y < 14,
                ];
                let light = if inside[class as usize] { 150.0 } else { 0.0 };
                [(); 3].map(|()| (light + draws.uniform(0.0, 100.0)) as u8)
            };
            let pixels: Vec<u8> = (0..SIDE * SIDE).flat_map(pixel).collect();
            let file = std::fs::File::create(folder.join(format!("{i}.png"))).unwrap();
            let mut png = png::Encoder::new(file, SIDE, SIDE);
            png.set_color(png::ColorType::Rgb);
            png.write_header()
                .unwrap()
                .write_image_data(&pixels)
                .unwrap();
        }
    }
}

/// Pictures to train on or those held out, with the transforms of either.
fn pictures(root: &Path, held_out: bool) -> Subset<ImageFolder> {
    let cut = Compose::new();
    let cut = if held_out {
        cut.then(CenterCrop::new(32))
    } else {
        cut.then(RandomCrop::new(32))
            .then(RandomHorizontalFlip::default())
    };
    let normal = Normalize::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).unwrap();
    let folder = ImageFolder::new(root, cut.then(ToTensor).then(normal)).unwrap();
    let [train, held] = folder.split(0.2, 3).unwrap();
    folder.subset(if held_out { held } else { train }).unwrap()
}

/// All that a run goes on from.
#[derive(Clone)]
struct Saved {
    model: BTreeMap<String, Vec<f32>>,
    moments: Vec<Vec<f32>>,
    steps: u64,
    rng: (u64, u64),
    cursor: Cursor,
}

/// What a run came to.
struct Trained {
    losses: Vec<u32>,
    accuracy: f32,
    peak_bytes: u64,
    saved: Saved,
}

/// The share of what is held out that a model tells right.
fn accuracy(model: &DenseNet, engine: &Engine, root: &Path) -> f32 {
    model.eval();
    let all = LoaderOptions {
        batch_size: 12,
        ..LoaderOptions::default()
    };
    let mut held_out = DataLoader::new(pictures(root, true), all).unwrap();
    let (images, classes) = held_out
        .next_batch()
        .unwrap()
        .unwrap()
        .to_tensors(engine)
        .unwrap();
    let share = no_grad(|| top_k_accuracy(&model.logits(&images)?, &classes, 1)?.item());
    share.unwrap()
}

fn train(root: &Path, arena: u64, workers: usize, steps: usize, from: Option<Saved>) -> Trained {
    let engine = Engine::builder().arena(arena).seed(1).build().unwrap();
    let config = DenseNetConfig {
        blocks: vec![3, 3],
        growth: 8,
        first: 16,
        ..DenseNetConfig::densenet121(3)
    };
    let model = DenseNet::new(&engine, &config).unwrap();
    let mut optimizer = AdamW::new(model.parameters(), AdamWOptions::default()).unwrap();
    let options = LoaderOptions {
        batch_size: 12,
        shuffle: true,
        seed: 5,
        workers,
        ..LoaderOptions::default()
    };
    let mut loader = DataLoader::new(pictures(root, false), options.clone()).unwrap();
    if let Some(saved) = from {
        model.load_state_dict(&saved.model).unwrap();
        optimizer.set_steps(saved.steps).unwrap();
        for ((_, moment), values) in optimizer.state_dict().iter().zip(&saved.moments) {
            moment.copy_from_slice(values).unwrap();
        }
        engine.set_rng_state(saved.rng.0, saved.rng.1);
        loader.seek(saved.cursor).unwrap();
    }
    let mut losses = Vec::new();
    while losses.len() < steps {
        let Some(batch) = loader.next_batch().unwrap() else {
            continue;
        };
        let (images, classes) = batch.to_tensors(&engine).unwrap();
        let loss = model
            .logits(&images)
            .unwrap()
            .cross_entropy(&classes)
            .unwrap();
        loss.backward().unwrap();
        optimizer.step().unwrap();
        losses.push(loss.item().unwrap().to_bits());
    }
    let peak_bytes = engine.max_memory_allocated();
    let values = |parameter: &highwater::Parameter| parameter.to_vec::<f32>().unwrap();
    let named = model.state_dict();
    let saved = Saved {
        model: named
            .iter()
            .map(|(name, own)| (name.clone(), values(own)))
            .collect(),
        moments: optimizer
            .state_dict()
            .iter()
            .map(|(_, own)| values(own))
            .collect(),
        steps: optimizer.steps(),
        rng: engine.rng_state(),
        cursor: loader.cursor(),
    };
    let accuracy = accuracy(&model, &engine, root);
    Trained {
        losses,
        accuracy,
        peak_bytes,
        saved,
    }
}

#[test]
fn classes_are_learnt_in_any_budget_and_by_runs_that_stop() {
    let folder = tempfile::tempdir().unwrap();
    paint(folder.path());
    let plenty = train(folder.path(), 256 << 20, 0, STEPS, None);
    assert!(plenty.accuracy > 0.9, "{}", plenty.accuracy);
    let first = f32::from_bits(plenty.losses[0]);
    let last = f32::from_bits(plenty.losses[STEPS - 1]);
    assert!(last < 0.5 * first, "{first} to {last}");

    let budget = plenty.peak_bytes * 2 / 3;
    let little = train(folder.path(), budget, 2, STEPS, None);
    assert!(little.peak_bytes <= budget);
    assert_eq!(little.losses, plenty.losses);
    assert_eq!(little.saved.model, plenty.saved.model);

    // In the middle of an epoch, and between two.
    for stop in [6, 8] {
        let begun = train(folder.path(), 256 << 20, 1, stop, None);
        let rest = train(folder.path(), budget, 2, STEPS - stop, Some(begun.saved));
        assert_eq!(
            [begun.losses, rest.losses].concat(),
            plenty.losses,
            "after {stop}"
        );
        assert_eq!(rest.saved.model, plenty.saved.model, "after {stop}");
        assert_eq!(rest.accuracy.to_bits(), plenty.accuracy.to_bits());
    }
}
