//! Hooks on tensors: what they see, in which order, what they answer, and how often they run.

use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::prelude::*;
use highwater::{GradOptions, grad, grad_with};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn engine() -> Engine {
    Engine::builder().memory(256 << 20).seed(4).build().unwrap()
}

fn parameter(engine: &Engine, values: &[f32]) -> Parameter {
    Parameter::new(engine, [values.len()], |w| w.copy_from_slice(values)).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// Several of one tensor, each with what the one before answered, and what goes on behind them.
#[test]
fn are_called_in_order_and_replace() {
    let engine = engine();
    let w = parameter(&engine, &[1.0, 2.0]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str, factor: f64| {
        let seen = Arc::clone(&seen);
        move |grad: &Tensor| {
            seen.lock().unwrap().push((name, grad.clone()));
            grad.mul_scalar(factor).map(Some)
        }
    };
    let x = w.square().unwrap();
    let y = x.mul_scalar(3.0).unwrap();
    w.register_hook(note("w", 100.0)).unwrap();
    x.register_hook(note("x", 2.0)).unwrap();
    x.register_hook(note("x again", 5.0)).unwrap();
    y.register_hook(note("y", 1.0)).unwrap();
    y.sum().unwrap().backward().unwrap();
    assert_eq!(numbers(&w.grad().unwrap()), [6000.0, 12000.0]);
    let seen = seen.lock().unwrap();
    let names: Vec<&str> = seen.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["y", "x", "x again", "w"]);
    let firsts: Vec<f32> = seen.iter().map(|(_, grad)| numbers(grad)[0]).collect();
    assert_eq!(firsts, [1.0, 3.0, 6.0, 60.0]);
}

/// The whole gradient of a tensor that is used twice, once for each backward; none where nothing reaches it.
#[test]
fn see_the_sum_once_for_each_backward() {
    let engine = engine();
    let w = parameter(&engine, &[1.0]);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let x = w.mul_scalar(1.0).unwrap();
    x.register_hook(move |grad| {
        count.fetch_add(1, Ordering::Relaxed);
        assert!(!grad.requires_grad()?);
        Ok(None)
    })
    .unwrap();
    let loss = x.square().unwrap().add(&x).unwrap().sum().unwrap();
    loss.backward().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    loss.backward().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    w.square().unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert_eq!(numbers(&w.grad().unwrap()), [8.0]);
}

/// A parameter's stay from step to step until they are removed; a tensor's go with its graph.
#[test]
fn stay_until_they_are_removed() {
    let engine = engine();
    let w = parameter(&engine, &[1.0]);
    let options = SgdOptions {
        lr: 1.0,
        ..SgdOptions::default()
    };
    let mut optimizer = Sgd::new(vec![w.clone()], options).unwrap();
    let handle = w
        .register_hook(|grad| grad.mul_scalar(0.5).map(Some))
        .unwrap();
    let mut step = || {
        w.mul_scalar(2.0)
            .unwrap()
            .sum()
            .unwrap()
            .backward()
            .unwrap();
        optimizer.step().unwrap();
        numbers(&w)[0]
    };
    assert_eq!([step(), step()], [0.0, -1.0]);
    handle.remove();
    handle.remove();
    assert_eq!(step(), -3.0);
}

/// `grad` answers what hooks left, and they take part in what has gradients in turn.
#[test]
fn are_part_of_gradients_of_gradients() {
    let engine = engine();
    let x = engine
        .tensor(&[2.0], [1])
        .unwrap()
        .requires_grad_()
        .unwrap();
    let y = x.square().unwrap();
    x.register_hook(|grad| grad.square().map(Some)).unwrap();
    let total = y.sum().unwrap();
    let options = GradOptions {
        create_graph: true,
        ..GradOptions::default()
    };
    // (2 x)^2, and of that 8 x, squared.
    let first = grad_with(&[&total], &[&x], options).unwrap().remove(0);
    let second = grad(&first, &[&x]).unwrap().remove(0);
    assert_eq!([numbers(&first), numbers(&second)], [[16.0], [256.0]]);
}

/// Bits are the same where nodes are computed again, and hooks do not run again for it.
#[test]
fn run_once_under_any_budget() {
    let step = |engine: &Engine| {
        let w = Parameter::new(engine, [16, 16], |w| {
            for (i, w) in w.iter_mut().enumerate() {
                *w = (i as f32 * 0.37).sin() * 0.4;
            }
        })
        .unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let mut optimizer = Sgd::new(vec![w.clone()], SgdOptions::default()).unwrap();
        let x: Vec<f32> = (0..512).map(|k| (k as f32 * 0.71).cos()).collect();
        let mut y = engine.tensor(&x, [32, 16]).unwrap();
        for _ in 0..6 {
            y = y.matmul(&w).unwrap().tanh().unwrap();
            let calls = Arc::clone(&calls);
            let hook = move |grad: &Tensor| {
                calls.fetch_add(1, Ordering::Relaxed);
                grad.tanh()?.mul_scalar(1.5).map(Some)
            };
            y.register_hook(hook).unwrap();
        }
        y.square().unwrap().mean().unwrap().backward().unwrap();
        optimizer.step().unwrap();
        let again = engine.last_step().recomputed_nodes;
        assert_eq!(calls.load(Ordering::Relaxed), 6);
        (w.to_vec::<f32>().unwrap(), again)
    };
    let (plenty, _) = step(&engine());
    let mut recomputed = 0;
    for kib in [12, 14, 16, 20, 24, 32] {
        let engine = Engine::builder().arena(kib << 10).seed(4).build();
        let tight =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&engine.unwrap())));
        if let Ok((tight, again)) = tight {
            recomputed += again;
            let same = tight.iter().zip(&plenty);
            assert!(
                same.clone().all(|(a, b)| a.to_bits() == b.to_bits()),
                "{kib} KiB"
            );
        }
    }
    assert!(recomputed > 0);
}

#[test]
fn what_they_may_not_do_is_told() {
    let engine = engine();
    let w = parameter(&engine, &[1.0, 2.0]);
    let told = |hook: fn(&Tensor) -> Result<Option<Tensor>>, what: &str| {
        let x = w.square().unwrap();
        x.register_hook(hook).unwrap();
        let error = x.sum().unwrap().backward().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    told(|grad| grad.sum().map(Some), "in the place of one of");
    told(|grad| grad.reshape([3]).map(Some), "reshape");
    told(
        |grad| grad.to_vec::<f32>().map(|_| None),
        "a hook had something computed",
    );
    let plain = engine.tensor(&[1.0], [1]).unwrap();
    let error = plain.register_hook(|_| Ok(None)).unwrap_err().to_string();
    assert!(error.contains("does not require gradients"), "{error}");
    let x = w.square().unwrap();
    x.register_hook(|_| panic!("the user's")).unwrap();
    let sum = x.sum().unwrap();
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sum.backward()));
    assert!(stopped.is_err());
    drop((x, sum));
    // The engine goes on, and what was begun has left nothing.
    w.square().unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(numbers(&w.grad().unwrap()), [2.0, 4.0]);
}
