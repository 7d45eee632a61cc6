//! Odd but legal uses, and wrong ones: an error at most, never a hang, a crash or other numbers.

use crate::share::some;
use highwater::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Error, Parameter, Result, Tensor};
use std::time::Duration;

fn sgd(parameters: &[Parameter]) -> Sgd {
    let options = SgdOptions {
        lr: 0.1,
        ..SgdOptions::default()
    };
    Sgd::new(parameters.to_vec(), options).unwrap()
}

fn parameter(engine: &Engine, values: &[f32]) -> Parameter {
    Parameter::new(engine, [values.len()], |own| own.copy_from_slice(values)).unwrap()
}

/// A chain of layers whose gradients and loss are read before the step; bytes that it took and the
/// weights' bits.
fn read_on_the_way(arena: u64, reads: &[usize]) -> Result<(u64, Vec<u32>)> {
    let engine = Engine::builder().threads(1).arena(arena).build()?;
    let weights = (0..6).map(|_| Parameter::uniform(&engine, [64, 64], 0.2));
    let weights: Vec<Parameter> = weights.collect::<Result<_>>()?;
    let mut sgd = sgd(&weights);
    for _ in 0..2 {
        let mut h = engine.tensor(&vec![0.1; 128 * 64], [128, 64])?;
        for weight in &weights {
            h = h.matmul(weight)?.tanh()?;
        }
        let loss = h.mul(&h)?.mean()?;
        drop(h);
        loss.backward()?;
        for &i in reads {
            weights[i].grad().unwrap().sum()?.item()?;
            loss.item()?;
        }
        sgd.step()?;
    }
    let report = engine.last_step();
    let mut bits = Vec::new();
    for weight in &weights {
        bits.extend(weight.to_vec::<f32>()?.into_iter().map(f32::to_bits));
    }
    Ok((report.planned_arena_bytes + report.state_bytes, bits))
}

#[test]
fn what_fits_with_reads_on_the_way_fits_with_more_memory() {
    for reads in some([&[3][..], &[3, 0], &[0, 5, 2]]) {
        let (_, expected) = read_on_the_way(1 << 30, reads).unwrap();
        let mut fits = false;
        for arena in (230_000..700_000_u64).step_by(24_576) {
            match read_on_the_way(arena, reads) {
                Ok((_, bits)) => {
                    assert_eq!(bits, expected, "{reads:?} in {arena}");
                    fits = true;
                }
                Err(Error::OverBudget { .. } | Error::State { .. }) if !fits => {}
                Err(error) => panic!("{reads:?} in {arena}, fits less: {fits}: {error}"),
            }
        }
        assert!(fits);
    }
}

#[test]
fn inputs_made_while_another_thread_steps_wait_for_it() {
    let run = |arena: u64, others: u32| {
        let engine = Engine::builder().threads(1).arena(arena).build().unwrap();
        let weight = Parameter::uniform(&engine, [256, 256], 0.06).unwrap();
        let mut sgd = sgd(std::slice::from_ref(&weight));
        let mut h = engine.tensor(&vec![0.01; 512 * 256], [512, 256]).unwrap();
        for _ in 0..12 {
            h = h.matmul(&weight).unwrap().tanh().unwrap();
        }
        h.mul(&h).unwrap().mean().unwrap().backward().unwrap();
        std::thread::scope(|scope| {
            let engine = engine.clone();
            scope.spawn(move || {
                for _ in 0..others {
                    std::thread::sleep(Duration::from_millis(1));
                    // Has room or has not; must not take the running step's.
                    let _ = engine.tensor(&vec![1.0; 512 * 512], [512, 512]);
                }
            });
            sgd.step().unwrap();
        });
        let report = engine.last_step();
        let need = report.planned_arena_bytes + report.state_bytes;
        (need, weight.to_vec::<f32>().unwrap())
    };
    let (need, expected) = run(1 << 32, 0);
    assert_eq!(run(need + (1 << 19), 60).1, expected);
}

#[test]
fn closures_over_bytes_may_use_other_parameters() {
    let engine = Engine::builder().build().unwrap();
    let [a, b] = [1.0, 2.0].map(|x| parameter(&engine, &[x; 4]));
    let copy = |to: &mut [f32]| to.copy_from_slice(&b.to_vec::<f32>().unwrap());
    a.with_values_mut(copy).unwrap();
    let same = a.with_bytes(|a| b.with_bytes(|b| a == b).unwrap()).unwrap();
    assert!(same);
    // But not the same one while it is written, nor a step that would write it.
    let inner = a.with_values_mut(|_| a.to_vec::<f32>()).unwrap();
    assert!(matches!(inner, Err(Error::Usage { .. })), "{inner:?}");
    let inner = a.with_values_mut(|_| a.with_bytes(|_| ())).unwrap();
    assert!(matches!(inner, Err(Error::Usage { .. })), "{inner:?}");
    let mut sgd = sgd(std::slice::from_ref(&a));
    a.sum().unwrap().backward().unwrap();
    let inner = a.with_bytes(|_| sgd.step()).unwrap();
    assert!(matches!(inner, Err(Error::Usage { .. })), "{inner:?}");
    sgd.step().unwrap();
}

#[test]
fn a_stopped_step_keeps_accumulated_gradients() {
    let engine = Engine::builder().build().unwrap();
    let weight = parameter(&engine, &[1.0, 2.0]);
    let mut sgd = sgd(std::slice::from_ref(&weight));
    weight.sum().unwrap().backward().unwrap();
    assert_eq!(weight.grad().unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
    highwater::eval(&[]).unwrap();
    // The logarithm of a negative number.
    let bad = weight.mul_scalar(-1.0).unwrap().log().unwrap();
    bad.sum().unwrap().backward().unwrap();
    assert!(matches!(sgd.step(), Err(Error::NonFinite { .. })));
    assert_eq!(weight.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    assert!(weight.grad().is_some());
}

#[test]
fn gradients_that_are_views_add_up_over_evaluations() {
    let engine = Engine::builder().build().unwrap();
    let weight = parameter(&engine, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let x = engine.tensor(&[1.0, 2.0], [1, 2]).unwrap();
    let y = engine.tensor(&[1.0, 2.0, 3.0], [1, 3]).unwrap();
    for _ in 0..3 {
        // Of one number for all elements, and of a transposed product.
        weight.sum().unwrap().backward().unwrap();
        highwater::eval(&[]).unwrap();
        let matrix = weight.reshape([3, 2]).unwrap().transpose(0, 1).unwrap();
        let out = x.matmul(&matrix).unwrap().mul(&y).unwrap();
        out.sum().unwrap().backward().unwrap();
        highwater::eval(&[]).unwrap();
    }
    let grad = weight.grad().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(grad, [2.0, 3.0, 3.0, 5.0, 4.0, 7.0].map(|x| 3.0 * x));
}

#[test]
fn steps_without_gradients_do_not_count() {
    let engine = Engine::builder().build().unwrap();
    let weight = parameter(&engine, &[1.0]);
    let mut adamw = AdamW::new(vec![weight.clone()], AdamWOptions::default()).unwrap();
    adamw.step().unwrap();
    assert_eq!(adamw.steps(), 0);
    weight.sum().unwrap().backward().unwrap();
    adamw.step().unwrap();
    assert_eq!(adamw.steps(), 1);
}

/// As PyTorch: the first update of a parameter is corrected as a first one, whenever it comes.
#[test]
fn a_parameter_that_is_unfrozen_late_counts_its_own_steps() {
    let engine = Engine::builder().build().unwrap();
    let [early, late] = [1.0, 1.0].map(|x| parameter(&engine, &[x]));
    let options = AdamWOptions {
        lr: 0.1,
        weight_decay: 0.0,
        ..AdamWOptions::default()
    };
    let mut adamw = AdamW::new(vec![early.clone(), late.clone()], options).unwrap();
    late.set_requires_grad(false);
    for step in 0..20 {
        late.set_requires_grad(step == 19);
        early.add(&late).unwrap().sum().unwrap().backward().unwrap();
        adamw.step().unwrap();
    }
    let moved = 1.0 - late.to_vec::<f32>().unwrap()[0];
    assert!((moved - 0.1).abs() < 1e-6, "{moved}");
    assert_eq!(adamw.step_counts(), [20, 1]);
}

#[test]
fn a_parameter_frozen_before_backward_gets_no_gradient() {
    let engine = Engine::builder().build().unwrap();
    let [a, b] = [2.0, 3.0].map(|x| parameter(&engine, &[x]));
    let out = a.mul(&b).unwrap().sum().unwrap();
    a.set_requires_grad(false);
    out.backward().unwrap();
    assert!(a.grad().is_none());
    assert_eq!(b.grad().unwrap().to_vec::<f32>().unwrap(), [2.0]);
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let engine = Engine::builder().build().unwrap();
    let weight = parameter(&engine, &[1.0]);
    for lr in [f64::NAN, -1.0, f64::INFINITY] {
        let options = AdamWOptions {
            lr,
            ..AdamWOptions::default()
        };
        let refused = AdamW::new(vec![weight.clone()], options).unwrap_err();
        assert!(
            refused.to_string().contains("lr must be a number"),
            "{refused}"
        );
    }
    let options = SgdOptions {
        momentum: -0.5,
        ..SgdOptions::default()
    };
    assert!(Sgd::new(vec![weight], options).is_err());
}

#[test]
fn shapes_beyond_all_memory_are_refused() {
    let engine = Engine::builder().build().unwrap();
    let one = engine.tensor(&[1.0], [1, 1]).unwrap();
    let four = engine.tensor(&[1.0; 4], [4]).unwrap();
    let errors = [
        Tensor::randn(&engine, [1 << 40, 1 << 22]).map(drop),
        one.expand([1 << 40, 1 << 40]).map(drop),
        four.reshape([(1 << 63) + 2, 2]).map(drop),
        one.reshape(vec![1; 12]).map(drop),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::Usage { .. })), "{error:?}");
    }
    let wide = one.expand([1 << 40, 1]).unwrap();
    let refused = wide.matmul(&one.expand([1, 1 << 40]).unwrap());
    assert!(matches!(refused, Err(Error::Op { .. })), "{refused:?}");
}

#[test]
fn a_gradient_that_is_refused_is_not_asked_for() {
    let engine = Engine::builder().build().unwrap();
    let weight = parameter(&engine, &[2.0]);
    let x = engine.tensor(&[3.0], [1]).unwrap();
    let out = weight.mul(&x).unwrap().sum().unwrap();
    let refused = x.clone().requires_grad_().unwrap_err();
    assert!(refused.to_string().contains("first use"), "{refused}");
    // Neither in what used it before, nor in what uses it afterwards.
    assert!(!x.requires_grad().unwrap());
    let again = weight.mul(&x).unwrap().sum().unwrap();
    out.add(&again).unwrap().backward().unwrap();
    assert!(x.grad().is_none());
    assert_eq!(weight.grad().unwrap().to_vec::<f32>().unwrap(), [6.0]);
    // Indices get none, wherever they are.
    let ids = Parameter::frozen(&engine, highwater::DType::U32, [1], |_| {}).unwrap();
    assert!(Tensor::clone(&ids).requires_grad_().is_err());
    assert!(!ids.requires_grad().unwrap());
}
