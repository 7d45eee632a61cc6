//! What users do about memory themselves: scopes that say what they freed, parameters that wait elsewhere,
//! batches in parts.

use crate::models::{Layers, Random};
use highwater::nn::{BatchNorm1d, BatchNormOptions, Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, accumulate};
use highwater::{
    DType, Engine, Error, MemCache, Parameter, Result, Tensor, Tier, micro_batch, no_grad,
};
use std::sync::atomic::{AtomicBool, Ordering};

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

fn norm(engine: &Engine, whole_batches: bool) -> BatchNorm1d {
    let options = BatchNormOptions {
        whole_batches,
        ..BatchNormOptions::default()
    };
    BatchNorm1d::new(engine, 4, options).unwrap()
}

fn buffers(norm: &BatchNorm1d) -> Vec<Vec<f32>> {
    let buffers = norm.named_buffers().into_iter();
    buffers
        .map(|(_, buffer)| buffer.to_vec().unwrap())
        .collect()
}

fn assert_near(got: &[Vec<f32>], expected: &[Vec<f32>], what: &dyn std::fmt::Debug) {
    for (a, b) in got.iter().flatten().zip(expected.iter().flatten()) {
        assert!((a - b).abs() < 2e-6 * (1.0 + b.abs()), "{what:?}: {a} {b}");
    }
}

/// 6 samples.
fn batch(engine: &Engine, random: &mut Random) -> Tensor {
    let values: Vec<f32> = random.values(24).iter().map(|x| 3.0 * x + 1.0).collect();
    engine.tensor(&values, [6, 4]).unwrap()
}

fn parts(x: &Tensor, cuts: &[usize]) -> Vec<Tensor> {
    let starts = cuts.iter().scan(0, |start, &len| {
        *start += len;
        Some(*start - len)
    });
    let parts = starts.zip(cuts);
    parts
        .map(|(start, &len)| x.narrow(0, start, len).unwrap())
        .collect()
}

/// Running statistics after two batches, each in parts.
fn statistics(cuts: &[usize], whole_batches: bool) -> Vec<Vec<f32>> {
    let engine = Engine::builder().build().unwrap();
    let norm = norm(&engine, whole_batches);
    let mut random = Random(2);
    for _ in 0..2 {
        let parts = parts(&batch(&engine, &mut random), cuts);
        let loss = |part: &Tensor| norm.forward(part)?.mean();
        accumulate(&parts, |part| part.dims()[0], loss).unwrap();
    }
    buffers(&norm)
}

#[test]
fn running_statistics_of_parts_are_those_of_the_batch() {
    let whole = statistics(&[6], true);
    assert_eq!(whole[2], [2.0]);
    // A part that counts nothing is none.
    for cuts in [&[3, 3][..], &[2, 4], &[2, 2, 2], &[2, 0, 4, 0]] {
        assert_near(&statistics(cuts, true), &whole, &cuts);
    }
    // Without the option each part is a batch.
    assert_eq!(statistics(&[2, 4], false)[2], [4.0]);
}

/// A batch that was left in the middle, by an error, for evaluation or at an epoch's end, is no part of the next.
#[test]
fn a_batch_that_was_not_finished_leaves_no_trace() {
    let engine = Engine::builder().build().unwrap();
    let (norm, plain) = (norm(&engine, true), norm(&engine, false));
    let mut random = Random(3);
    let forward = |norm: &BatchNorm1d, x: &Tensor| {
        norm.forward(x).unwrap().sum().unwrap().backward().unwrap();
    };
    for round in 0..3 {
        let lost = batch(&engine, &mut random).mul_scalar(100.0).unwrap();
        micro_batch(0, 2, || forward(&norm, &lost));
        if round == 1 {
            norm.eval();
            let seen = no_grad(|| norm.forward(&lost)).unwrap();
            seen.to_vec::<f32>().unwrap();
            norm.train(true);
        }
        let x = batch(&engine, &mut random);
        for (i, part) in parts(&x, &[2, 4]).iter().enumerate() {
            micro_batch(i, 2, || forward(&norm, part));
        }
        forward(&plain, &x);
        assert_near(&buffers(&norm), &buffers(&plain), &round);
        // Outside of parts it is a batch.
        let x = batch(&engine, &mut random);
        forward(&norm, &x);
        forward(&plain, &x);
    }
}

/// A module that a part uses twice has two updates.
#[test]
fn a_norm_that_is_used_twice_has_two_updates() {
    let engine = Engine::builder().build().unwrap();
    let (norm, plain) = (norm(&engine, true), norm(&engine, false));
    let x = batch(&engine, &mut Random(4));
    for (i, part) in parts(&x, &[2, 4]).iter().enumerate() {
        micro_batch(i, 2, || {
            norm.forward(part).unwrap();
            norm.forward(&part.mul_scalar(2.0).unwrap()).unwrap();
        });
    }
    plain.forward(&x).unwrap();
    plain.forward(&x.mul_scalar(2.0).unwrap()).unwrap();
    assert_near(&buffers(&norm), &buffers(&plain), &"twice");
}

#[test]
fn emptying_the_cache_leaves_a_step_of_another_thread_alone() {
    let steps = |engine: &Engine| {
        let model = Layers::new(engine, &[64, 64, 64]).unwrap();
        let mut adamw = AdamW::new(model.parameters(), AdamWOptions::default()).unwrap();
        let mut step = |index| {
            let loss = model.loss(index, 2).unwrap();
            loss.backward().unwrap();
            adamw.step().unwrap();
            loss.item().unwrap().to_bits()
        };
        (0..30).map(&mut step).collect::<Vec<_>>()
    };
    let engine = || Engine::builder().seed(1).threads(1).build().unwrap();
    let expected = steps(&engine());
    let (engine, stop) = (engine(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                engine.empty_cache();
                MemCache::new(&engine).clear();
            }
        });
        let losses = steps(&engine);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(losses, expected);
    });
}

#[test]
fn a_hook_may_empty_the_cache_and_own_a_scope() {
    let engine = Engine::builder().arena(16 * MIB).build().unwrap();
    let x = Parameter::new(&engine, [8], |x| x.fill(2.0)).unwrap();
    let y = x.square().unwrap();
    let cache = std::sync::Mutex::new(MemCache::new(&engine));
    let own = engine.clone();
    let hook = y.register_hook(move |grad| {
        own.empty_cache();
        cache.lock().unwrap().clear();
        Ok(Some(grad.mul_scalar(3.0)?))
    });
    let hook = hook.unwrap();
    y.sum().unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [12.0; 8]);
    hook.remove();
}

#[test]
fn a_scope_frees_parameters_while_something_else_is_pending() {
    let engine = Engine::builder().arena(32 * MIB).build().unwrap();
    let used = Parameter::new(&engine, [1 << 20], |w| w.fill(1.0)).unwrap();
    let pending = used.mul_scalar(2.0).unwrap();
    let mut cache = MemCache::new(&engine);
    cache.hold(Parameter::new(&engine, [1 << 20], |_| {}).unwrap());
    let freed = cache.clear();
    assert_eq!(freed.state_before - freed.state_after, 4 * MIB);
    // What is still read stays, though its owner is gone.
    cache.hold(used);
    assert_eq!(cache.clear().bytes(), 0);
    assert!(pending.to_vec::<f32>().unwrap().iter().all(|&x| x == 2.0));
}

#[test]
fn a_parameter_in_the_hands_of_a_closure_does_not_move() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Engine::builder().arena(16 * MIB);
    let engine = builder.disk(folder.path(), 16 * MIB).build().unwrap();
    let w = Parameter::new(&engine, [1 << 15], |w| w.fill(1.0)).unwrap();
    for (from, to) in [(Tier::Disk, Tier::Device), (Tier::Device, Tier::Disk)] {
        w.to(from).unwrap();
        let refused = w.with_values_mut(|values| {
            values.fill(2.0);
            w.to(to)
        });
        let error = refused.unwrap().unwrap_err().to_string();
        assert!(error.contains("a closure has"), "{error}");
        assert_eq!(w.to_vec::<f32>().unwrap()[0], 2.0);
        w.with_values_mut(|values| values.fill(1.0)).unwrap();
    }
}

/// Room is made in memory for what comes there.
#[test]
fn others_make_room_for_a_parameter_that_moves() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Engine::builder()
        .device_memory(48 * MIB)
        .host_memory(4 * MIB);
    let engine = builder.disk(folder.path(), 64 * MIB).build().unwrap();
    let room = engine.tiers().device.room_bytes;
    let large = Parameter::new(&engine, [3 << 20], |w| w.fill(1.0)).unwrap();
    large.to(Tier::Disk).unwrap();
    let other = || {
        let other = Parameter::new(&engine, [1 << 20], |_| {}).unwrap();
        other.to(Tier::Device).unwrap();
        other
    };
    let others: Vec<Parameter> = (0..room / (4 * MIB) - 1).map(|_| other()).collect();
    large.to(Tier::Device).unwrap();
    let moved = |other: &Parameter| other.tier().unwrap() != Tier::Device;
    assert!(others.iter().any(moved));
    assert!(engine.tiers().device.most_bytes <= room);
    // No room on the host: it is where it was.
    large.to(Tier::Disk).unwrap();
    assert!(large.to(Tier::Host).is_err());
    assert_eq!(large.tier().unwrap(), Tier::Disk);
    assert!(large.to_vec::<f32>().unwrap().iter().all(|&w| w == 1.0));
}
