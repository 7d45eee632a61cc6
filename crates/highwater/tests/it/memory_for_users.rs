//! What users do about memory themselves: scopes that say what they freed, parameters that wait elsewhere,
//! batches in parts.

use crate::models::{Layers, Random};
use highwater::nn::{BatchNorm1d, BatchNormOptions, Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, accumulate};
use highwater::{DType, Engine, Error, MemCache, Parameter, Result, Tensor, Tier};

const MIB: u64 = 1 << 20;

#[test]
fn a_scope_frees_what_it_holds_and_says_so() {
    let engine = Engine::builder().arena(32 * MIB).build().unwrap();
    let zeros = || Tensor::zeros(&engine, [1 << 20], DType::F32).unwrap();
    let kept = zeros();
    let before = engine.state_bytes();
    let mut cache = MemCache::new(&engine);
    cache.hold(zeros());
    cache.hold(vec![zeros(), zeros()]);
    // Held elsewhere too: that is not freed.
    cache.hold(kept.clone());
    assert_eq!(engine.state_bytes() - before, 12 * MIB);
    let freed = cache.clear();
    assert_eq!(freed.state_before - freed.state_after, 12 * MIB);
    assert_eq!(
        freed.bytes(),
        freed.allocated_before - freed.allocated_after
    );
    assert!(freed.bytes() >= 12 * MIB);
    assert_eq!(engine.state_bytes(), before);
    assert_eq!(freed.left, 32 * MIB - engine.state_bytes());
    let text = freed.to_string();
    assert!(
        text.starts_with("freed ") && text.ends_with(" left"),
        "{text}"
    );
    assert_eq!(kept.to_vec::<f32>().unwrap().len(), 1 << 20);

    // Once more, with nothing; then by dropping it.
    assert_eq!(cache.clear().bytes(), 0);
    cache.hold(zeros());
    drop(cache);
    assert_eq!(engine.state_bytes(), before);
}

#[test]
fn a_scope_frees_what_was_dropped_elsewhere_and_the_arena() {
    let engine = Engine::builder().arena(32 * MIB).build().unwrap();
    let x = Tensor::randn(&engine, [256, 1024]).unwrap();
    let y = x.exp().unwrap().add(&x).unwrap();
    y.to_vec::<f32>().unwrap();
    drop(y);
    let freed = MemCache::new(&engine).clear();
    assert_eq!(
        freed.allocated_after,
        engine.memory_stats()["allocated_bytes.all.current"]
    );
    assert_eq!(freed.allocated_after, freed.state_after);
}

const WIDTHS: [usize; 3] = [160, 160, 160];

/// Three steps; before each, parameters are where `at` says.
fn losses(engine: &Engine, at: impl Fn(u64, &Layers)) -> Vec<u32> {
    let model = Layers::new(engine, &WIDTHS).unwrap();
    let mut adamw = AdamW::new(model.parameters(), AdamWOptions::default()).unwrap();
    (0..3)
        .map(|index| {
            at(index, &model);
            let loss = model.loss(index, 2).unwrap();
            loss.backward().unwrap();
            adamw.step().unwrap();
            loss.item().unwrap().to_bits()
        })
        .collect()
}

#[test]
fn parameters_wait_where_they_are_told_to_and_train_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let plenty = Engine::builder().seed(3).build().unwrap();
    let expected = losses(&plenty, |_, _| ());
    let engine = Engine::builder()
        .device_memory(32 * MIB)
        .host_memory(8 * MIB)
        .disk(folder.path(), 8 * MIB)
        .seed(3)
        .build()
        .unwrap();
    let seen = losses(&engine, |index, model| {
        let tiers = [Tier::Disk, Tier::Host, Tier::Device];
        for turn in 0..3 {
            let tier = tiers[(index as usize + turn) % 3];
            let values = |parameter: &Parameter| parameter.to_vec::<f32>().unwrap();
            let before: Vec<_> = model.parameters().iter().map(values).collect();
            for parameter in model.parameters() {
                parameter.to(tier).unwrap();
            }
            for (parameter, before) in model.parameters().iter().zip(before) {
                let large = parameter.shape().numel() * 4 >= 64 << 10;
                let there = parameter.tier().unwrap();
                assert_eq!(there, if large { tier } else { Tier::Device });
                assert_eq!(values(parameter), before);
                // Reading it has not moved it.
                assert_eq!(parameter.tier().unwrap(), there);
            }
        }
    });
    assert_eq!(seen, expected);
}

#[test]
fn a_parameter_that_waits_leaves_room() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Engine::builder()
        .arena(16 * MIB)
        .disk(folder.path(), 16 * MIB);
    let engine = builder.build().unwrap();
    let w = Parameter::new(&engine, [1 << 20], |w| w.fill(1.5)).unwrap();
    assert_eq!(w.tier().unwrap(), Tier::Device);
    let before = engine.state_bytes();
    w.to(Tier::Disk).unwrap();
    assert_eq!(before - engine.state_bytes(), 4 * MIB);
    assert_eq!(engine.disk_bytes() / MIB, 4);
    w.to(Tier::Device).unwrap();
    assert_eq!((engine.state_bytes(), engine.disk_bytes()), (before, 0));
    assert!(w.to_vec::<f32>().unwrap().iter().all(|&w| w == 1.5));

    // What pending work reads may move meanwhile.
    let twice = w.mul_scalar(2.0).unwrap();
    w.to(Tier::Disk).unwrap();
    assert!(twice.to_vec::<f32>().unwrap().iter().all(|&x| x == 3.0));
}

#[test]
fn tiers_that_are_not_there_are_refused() {
    let engine = Engine::builder().arena(8 * MIB).build().unwrap();
    let w = Parameter::new(&engine, [1 << 16], |_| {}).unwrap();
    w.to(Tier::Device).unwrap();
    for (tier, how) in [(Tier::Host, "host_memory"), (Tier::Disk, "Builder::disk")] {
        let error = w.to(tier).unwrap_err();
        assert!(matches!(error, Error::Usage { .. }), "{error}");
        assert!(error.to_string().contains(how), "{error}");
    }
}

#[test]
fn a_tier_that_is_full_refuses_and_leaves_the_parameter_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Engine::builder()
        .arena(16 * MIB)
        .disk(folder.path(), 2 * MIB);
    let engine = builder.build().unwrap();
    let w = Parameter::new(&engine, [1 << 20], |w| w.fill(0.25)).unwrap();
    assert!(w.to(Tier::Disk).is_err());
    assert_eq!(w.tier().unwrap(), Tier::Device);
    assert!(w.to_vec::<f32>().unwrap().iter().all(|&w| w == 0.25));
}

/// Loss and gradients of a linear layer on 7 samples, cut into parts.
fn of_parts(cuts: &[usize]) -> (f32, Vec<f32>) {
    let engine = Engine::builder().seed(5).build().unwrap();
    let layer = Linear::new(&engine, 3, 2, true).unwrap();
    let mut random = Random(9);
    let x = engine.tensor(&random.values(21), [7, 3]).unwrap();
    let mut start = 0;
    let parts: Vec<Tensor> = cuts
        .iter()
        .map(|&len| {
            start += len;
            x.narrow(0, start - len, len).unwrap()
        })
        .collect();
    let loss = accumulate(
        &parts,
        |part| part.dims()[0],
        |part| layer.forward(part)?.square()?.sum_dims(&[1], false)?.mean(),
    );
    let gradients = layer
        .parameters()
        .iter()
        .flat_map(|parameter| {
            let gradient = parameter.grad().unwrap();
            gradient.to_vec::<f32>().unwrap()
        })
        .collect();
    (loss.unwrap().item().unwrap(), gradients)
}

#[test]
fn uneven_parts_have_the_gradient_of_the_whole() {
    let (loss, gradients) = of_parts(&[7]);
    for cuts in [&[4, 3][..], &[1, 5, 1], &[0, 6, 0, 1]] {
        let (part_loss, part) = of_parts(cuts);
        assert!((part_loss - loss).abs() < 1e-6 * loss.abs());
        for (a, b) in part.iter().zip(&gradients) {
            assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "{cuts:?}: {a} {b}");
        }
    }
    let none: Result<Tensor> =
        accumulate(&[(), ()], |()| 0, |()| unreachable!("it counts nothing"));
    assert!(matches!(none, Err(Error::Usage { .. })));
}

/// Running statistics after two batches of 6, each in parts.
fn statistics(cuts: &[usize], micro_batches: usize) -> Vec<Vec<f32>> {
    let engine = Engine::builder().build().unwrap();
    let options = BatchNormOptions {
        micro_batches,
        ..BatchNormOptions::default()
    };
    let norm = BatchNorm1d::new(&engine, 4, options).unwrap();
    let mut random = Random(2);
    for _ in 0..2 {
        let values: Vec<f32> = random.values(24).iter().map(|x| 3.0 * x + 1.0).collect();
        let x = engine.tensor(&values, [6, 4]).unwrap();
        let mut start = 0;
        for &len in cuts {
            let part = x.narrow(0, start, len).unwrap();
            start += len;
            norm.forward(&part)
                .unwrap()
                .sum()
                .unwrap()
                .backward()
                .unwrap();
        }
    }
    let buffers = norm.named_buffers().into_iter();
    buffers
        .map(|(_, buffer)| buffer.to_vec().unwrap())
        .collect()
}

#[test]
fn running_statistics_of_parts_are_those_of_the_batch() {
    let whole = statistics(&[6], 1);
    assert_eq!(whole[2], [2.0]);
    for cuts in [&[3, 3][..], &[2, 4], &[2, 2, 2]] {
        let parts = statistics(cuts, cuts.len());
        for (a, b) in parts.iter().flatten().zip(whole.iter().flatten()) {
            assert!((a - b).abs() < 2e-6 * (1.0 + b.abs()), "{cuts:?}: {a} {b}");
        }
        // Without the option each part is a batch.
        assert_eq!(statistics(cuts, 1)[2], [2.0 * cuts.len() as f32]);
    }
    // Nothing is written before the last part.
    assert_eq!(statistics(&[6], 3)[2], [0.0]);
}
