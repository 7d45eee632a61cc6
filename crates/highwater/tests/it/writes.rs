//! Writes of parameters by hand: in the order of the program, as in PyTorch, whatever is pending.

use crate::models::Random;
use crate::share::some;
use highwater::optim::Ema;
use highwater::prelude::*;

fn engine() -> Engine {
    let builder = Engine::builder().seed(1).threads(1);
    builder.arena(1 << 20).build().unwrap()
}

fn fresh(engine: &Engine) -> Parameter {
    Parameter::new(engine, [3], |w| w.copy_from_slice(&[1.0, 2.0, 3.0])).unwrap()
}

fn sgd(parameter: &Parameter, lr: f64) -> Sgd {
    let options = SgdOptions {
        lr,
        ..SgdOptions::default()
    };
    Sgd::new(vec![parameter.clone()], options).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// What a program has in hand when it writes; `backward` says whether it went back before.
#[test]
fn a_write_by_hand_is_never_refused() {
    let engines = [engine(), Engine::eager().threads(1).build().unwrap()];
    for engine in engines {
        for case in 0..64 {
            let on = |bit: u32| case >> bit & 1 == 1;
            let w = fresh(&engine);
            let frozen = on(0);
            let forward = || w.square().unwrap().sum().unwrap();
            let loss = if frozen { no_grad(forward) } else { forward() };
            let view = w.detach().unwrap();
            if on(1) && !frozen {
                loss.backward().unwrap();
            }
            let grad = on(2).then(|| w.grad()).flatten();
            if on(3) {
                highwater::eval([&loss]).unwrap();
            }
            let held = on(4).then_some(loss);
            if on(5) {
                w.zero_grad();
            }
            w.with_values_mut(|own| own.fill(5.0)).unwrap();
            assert_eq!(values(&w), [5.0; 3], "{case}");
            assert_eq!(values(&view), [1.0, 2.0, 3.0], "{case}");
            if let Some(loss) = held {
                assert_eq!(loss.item().unwrap(), 14.0, "{case}");
                let is_history_gone = loss.backward().is_err();
                assert!(is_history_gone, "{case}");
            }
            if let Some(grad) = grad {
                assert_eq!(values(&grad), [2.0, 4.0, 6.0], "{case}");
            }
            let kept = on(1) && !frozen && !on(5);
            assert_eq!(w.grad().is_some(), kept, "{case}");
            // And on it goes.
            w.zero_grad();
            forward().backward().unwrap();
            sgd(&w, 0.1).step().unwrap();
            assert_eq!(values(&w), [4.0; 3], "{case}");
        }
    }
}

/// Gradient descent and momentum by hand are those of the optimizer, bit for bit, whatever is read between.
#[test]
fn an_update_by_hand_is_the_optimizers() {
    let run = |by_hand: bool, seed: u64| {
        let engine = engine();
        let w = fresh(&engine);
        let x = engine.tensor(&[0.5, -1.0, 2.0], [3]).unwrap();
        let mut sgd = sgd(&w, 0.125);
        let mut random = Random(seed);
        let mut seen = Vec::new();
        for _ in 0..6 {
            let loss = w.mul(&x).unwrap().tanh().unwrap().sum().unwrap();
            if random.below(2) == 0 {
                seen.push(loss.item().unwrap());
            }
            loss.backward().unwrap();
            if by_hand {
                let grad = w.grad().unwrap();
                no_grad(|| w.add_(&grad, -0.125)).unwrap();
                w.zero_grad();
            } else {
                sgd.step().unwrap();
            }
            if random.below(2) == 0 {
                seen.extend(values(&w));
            }
            seen.push(loss.item().unwrap());
        }
        seen.extend(values(&w));
        seen
    };
    for seed in some(0..32) {
        assert_eq!(run(true, seed), run(false, seed), "{seed}");
    }
}

/// Random programs of writes and reads, compared with an interpreter over vectors.
#[test]
fn writes_are_in_the_order_of_the_program() {
    for seed in some(0..400) {
        let engine = engine();
        let mut random = Random(seed);
        let cells = [fresh(&engine), fresh(&engine)];
        let mut expected = [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0_f32]];
        let mut held: Vec<(Tensor, [f32; 3])> = Vec::new();
        for _ in 0..24 {
            let (to, from) = (random.below(2), random.below(2));
            let (value, plain) = match random.below(3) {
                0 => (cells[from].detach().unwrap(), expected[from]),
                1 => {
                    let doubled = no_grad(|| cells[from].mul_scalar(2.0)).unwrap();
                    (doubled, expected[from].map(|x| x * 2.0))
                }
                _ => match held.len() {
                    0 => (engine.tensor(&[4.0; 3], [3]).unwrap(), [4.0; 3]),
                    len => held[random.below(len)].clone(),
                },
            };
            let each = |f: &dyn Fn(f32, f32) -> f32| {
                let pairs = expected[to].iter().zip(plain);
                let all: Vec<f32> = pairs.map(|(&a, b)| f(a, b)).collect();
                [all[0], all[1], all[2]]
            };
            match random.below(7) {
                0 => {
                    no_grad(|| cells[to].assign(&value)).unwrap();
                    expected[to] = plain;
                }
                1 => {
                    no_grad(|| cells[to].add_(&value, 0.5)).unwrap();
                    expected[to] = each(&|a, b| a + b * 0.5);
                }
                2 => {
                    no_grad(|| cells[to].lerp_(&value, 0.25)).unwrap();
                    expected[to] = each(&|a, b| a + 0.25 * (b - a));
                }
                3 => {
                    let scale = |own: &mut [f32]| own.iter_mut().for_each(|x| *x *= 0.5);
                    cells[to].with_values_mut(scale).unwrap();
                    expected[to] = expected[to].map(|x| x * 0.5);
                }
                4 => held.push((value, plain)),
                5 if !held.is_empty() => {
                    let (tensor, plain) = held.swap_remove(random.below(held.len()));
                    assert_eq!(values(&tensor), plain, "{seed}");
                }
                _ => assert_eq!(values(&cells[to]), expected[to], "{seed}"),
            }
        }
        for (cell, expected) in cells.iter().zip(expected) {
            assert_eq!(values(cell), expected, "{seed}");
        }
        for (tensor, plain) in held {
            assert_eq!(values(&tensor), plain, "{seed}");
        }
    }
}

#[test]
fn a_write_that_no_gradient_could_pass_is_refused_outside_no_grad() {
    let engine = engine();
    let w = fresh(&engine);
    w.set_name("w");
    for result in [w.assign(&w), w.copy_(&w), w.add_(&w, 2.0), w.lerp_(&w, 0.5)] {
        let message = result.unwrap_err().to_string();
        assert!(
            message.contains("`w`, which requires gradients"),
            "{message}"
        );
    }
    no_grad(|| w.add_(&w, 1.0)).unwrap();
    assert_eq!(values(&w), [2.0, 4.0, 6.0]);
    let half = Parameter::frozen(&engine, highwater::DType::BF16, [3], |_| {}).unwrap();
    half.assign(&w).unwrap();
    assert_eq!(
        values(&half.to_dtype(highwater::DType::F32).unwrap()),
        [2.0, 4.0, 6.0]
    );
}

/// Averages, best weights and buffers are saved and loaded whatever is pending.
#[test]
fn state_is_saved_and_loaded_in_the_middle_of_a_step() {
    let engine = engine();
    let layers = vec![Linear::new(&engine, 3, 3, true).unwrap()];
    let options = SgdOptions {
        lr: 0.1,
        ..SgdOptions::default()
    };
    let mut sgd = Sgd::new(layers.parameters(), options).unwrap();
    let mut ema = Ema::new(layers.parameters(), 0.5).unwrap();
    let x = engine.tensor(&[1.0, 2.0, 3.0], [1, 3]).unwrap();
    let best: Vec<Vec<f32>> = layers.parameters().iter().map(|p| values(p)).collect();
    for _ in 0..3 {
        let loss = layers[0]
            .forward(&x)
            .unwrap()
            .square()
            .unwrap()
            .mean()
            .unwrap();
        loss.backward().unwrap();
        sgd.step().unwrap();
        ema.update().unwrap();
        // Forward in training mode, then everything is read and put back.
        let pending = layers[0].forward(&x).unwrap();
        let read = |p: &Parameter| p.with_bytes(<[u8]>::to_vec).unwrap();
        let saved: Vec<_> = layers.parameters().iter().map(read).collect();
        for (parameter, best) in layers.parameters().iter().zip(&best) {
            parameter.copy_from_slice(best).unwrap();
        }
        for (parameter, saved) in layers.parameters().iter().zip(saved) {
            parameter
                .with_bytes_mut(|own| own.copy_from_slice(&saved))
                .unwrap();
        }
        assert_eq!(pending.dims(), [1, 3]);
        pending.to_vec::<f32>().unwrap();
    }
}

/// Sums of an evaluation are computed as memory runs short, batch by batch.
#[test]
fn an_evaluation_that_sums_on_tensors_needs_no_more_memory_than_some_batches() {
    let sum = |memory: usize, read: bool| {
        let engine = Engine::builder().seed(2).threads(1).arena(memory as u64);
        let engine = engine.build().unwrap();
        let layer = Linear::new(&engine, 16, 4, true).unwrap();
        let mut right = engine.tensor(&[0.0], []).unwrap();
        no_grad(|| {
            for _ in 0..200 {
                let x = Tensor::rand(&engine, [512, 16])?;
                right = right.add(&layer.forward(&x)?.tanh()?.sum()?)?;
                if read {
                    right.item()?;
                }
            }
            Ok::<_, highwater::Error>(())
        })
        .unwrap();
        right.item().unwrap()
    };
    // A batch is 32 KiB.
    assert_eq!(sum(512 << 10, false), sum(64 << 20, true));
}

/// A result without history becomes a leaf, as in PyTorch.
#[test]
fn a_result_without_history_may_require_gradients() {
    let engine = engine();
    let x = engine.tensor(&[1.0, 2.0, 3.0], [3]).unwrap();
    let y = x.mul_scalar(2.0).unwrap().requires_grad_().unwrap();
    y.square().unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(values(&y.grad().unwrap()), [4.0, 8.0, 12.0]);
    let w = fresh(&engine);
    let history = w.square().unwrap();
    assert!(history.clone().requires_grad_().is_err());
    let z = history.detach().unwrap().requires_grad_().unwrap();
    z.sum().unwrap().backward().unwrap();
    assert_eq!(values(&z.grad().unwrap()), [1.0; 3]);
    assert!(w.grad().is_none());
}
