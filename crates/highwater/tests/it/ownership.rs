//! Gradients that are another tensor's values: of products, sums and views that a backward answers
//! as they are. Nothing that the user can read may change, and nothing may be lost.

use crate::models::Random;
use highwater::optim::{AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Error, Parameter, Tensor};

fn engines() -> [Engine; 2] {
    [Engine::builder(), Engine::eager()].map(|builder| builder.seed(3).threads(2).build().unwrap())
}

fn parameter(engine: &Engine, values: &[f32]) -> Parameter {
    Parameter::new(engine, [values.len()], |to| to.copy_from_slice(values)).unwrap()
}

fn sgd(parameters: &[&Parameter], lr: f64) -> Sgd {
    let options = SgdOptions {
        lr,
        ..SgdOptions::default()
    };
    Sgd::new(parameters.iter().map(|&p| p.clone()).collect(), options).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

fn dot(a: &Tensor, b: &Tensor) -> Tensor {
    a.mul(b).unwrap().sum().unwrap()
}

#[test]
fn an_input_is_what_it_was_after_two_micro_batches() {
    for engine in engines() {
        let w = parameter(&engine, &[1.0, 2.0, 3.0]);
        let x = engine.tensor(&[10.0, 20.0, 30.0], [3]).unwrap();
        let y = engine.tensor(&[100.0, 200.0, 300.0], [3]).unwrap();
        for batch in [&x, &y, &x, &x] {
            dot(&w, batch).backward().unwrap();
        }
        assert_eq!(values(&w.grad().unwrap()), [130.0, 260.0, 390.0]);
        sgd(&[&w], 1.0).step().unwrap();
        assert_eq!(values(&x), [10.0, 20.0, 30.0]);
        assert_eq!(values(&y), [100.0, 200.0, 300.0]);
        assert_eq!(values(&w), [-129.0, -258.0, -387.0]);
    }
}

#[test]
fn what_is_pending_reads_a_result_as_it_was() {
    for engine in engines() {
        let n = 40_000;
        let w = Parameter::new(&engine, [n], |to| to.fill(1.0)).unwrap();
        let x = engine.tensor(&vec![2.0; n], [n]).unwrap();
        let h = x.mul_scalar(3.0).unwrap();
        let later = h.mul_scalar(1000.0).unwrap().keep();
        for _ in 0..3 {
            dot(&w, &h).backward().unwrap();
        }
        assert!(values(&w.grad().unwrap()).iter().all(|&g| g == 18.0));
        assert!(values(&later).iter().all(|&v| v == 6000.0));
        assert!(values(&h).iter().all(|&v| v == 6.0));
    }
}

#[test]
fn an_update_reads_the_parameter_as_it_was() {
    let n = 300;
    let start = Random(5).values(n * n);
    for engine in engines() {
        let w = Parameter::new(&engine, [n, n], |to| to.copy_from_slice(&start)).unwrap();
        let transposed = w.detach().unwrap().transpose(0, 1).unwrap();
        dot(&w, &transposed).backward().unwrap();
        drop(transposed);
        sgd(&[&w], 0.5).step().unwrap();
        for (i, new) in values(&w).into_iter().enumerate() {
            let gradient = start[i % n * n + i / n];
            assert_eq!(new, start[i] - 0.5 * gradient, "{i}");
        }
    }
}

#[test]
fn two_parameters_are_each_others_gradients() {
    for engine in engines() {
        let (a, b) = (
            parameter(&engine, &[1.0, 2.0]),
            parameter(&engine, &[10.0, 20.0]),
        );
        let mut optimizer = sgd(&[&a, &b], 0.5);
        dot(&a, &b).backward().unwrap();
        assert_eq!(values(&a.grad().unwrap()), [10.0, 20.0]);
        optimizer.step().unwrap();
        assert_eq!(values(&a), [-4.0, -8.0]);
        assert_eq!(values(&b), [9.5, 19.0]);
        let mut adam = AdamW::new(vec![a.clone(), b.clone()], AdamWOptions::default()).unwrap();
        dot(&a, &b).backward().unwrap();
        adam.step().unwrap();
    }
}

#[test]
fn a_parameter_without_an_optimizer_keeps_its_gradient() {
    for engine in engines() {
        let (a, b) = (
            parameter(&engine, &[1.0, 2.0]),
            parameter(&engine, &[10.0, 20.0]),
        );
        let mut optimizer = sgd(&[&a], 0.5);
        for _ in 0..2 {
            dot(&a, &b).backward().unwrap();
            optimizer.step().unwrap();
        }
        // 1, 2 and then -4, -8.
        assert_eq!(values(&b.grad().unwrap()), [-3.0, -6.0]);
        assert_eq!(values(&a), [-9.0, -18.0]);
        assert_eq!(values(&b), [10.0, 20.0]);
    }
}

#[test]
fn a_gradient_that_was_asked_for_stays_what_it_was() {
    for engine in engines() {
        let w = parameter(&engine, &[1.0, 2.0]);
        let x = engine.tensor(&[3.0, 5.0], [2]).unwrap();
        let mut seen = Vec::new();
        for _ in 0..3 {
            dot(&w, &x).backward().unwrap();
            seen.push(w.grad().unwrap());
        }
        let doubled = seen[0].mul_scalar(2.0).unwrap();
        dot(&w, &x).backward().unwrap();
        let last = w.grad().unwrap();
        sgd(&[&w], 1.0).step().unwrap();
        for (i, grad) in (1_i8..).zip(&seen) {
            assert_eq!(values(grad), [3.0, 5.0].map(|g| g * f32::from(i)), "{i}");
        }
        assert_eq!(values(&doubled), [6.0, 10.0]);
        assert_eq!(values(&last), [12.0, 20.0]);
    }
}

#[test]
fn a_large_gradient_that_was_overwritten_is_refused_not_wrong() {
    for engine in engines() {
        let n = 40_000;
        let w = Parameter::new(&engine, [n], |to| to.fill(1.0)).unwrap();
        let x = engine.tensor(&vec![2.0; n], [n]).unwrap();
        dot(&w, &x).backward().unwrap();
        let (first, kept) = (w.grad().unwrap(), w.grad().unwrap().keep());
        for _ in 0..2 {
            dot(&w, &x).backward().unwrap();
        }
        assert!(values(&w.grad().unwrap()).iter().all(|&g| g == 6.0));
        assert!(values(&kept).iter().all(|&g| g == 2.0));
        match first.to_vec::<f32>() {
            Ok(grad) => assert!(grad.iter().all(|&g| g == 2.0)),
            Err(Error::Op { source, .. }) => assert!(source.to_string().contains("overwritten")),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_gradient_outlives_zero_grad_for_who_holds_it() {
    for engine in engines() {
        let w = parameter(&engine, &[1.0, 2.0]);
        let x = engine.tensor(&[3.0, 5.0], [2]).unwrap();
        let mut optimizer = sgd(&[&w], 1.0);
        dot(&w, &x).backward().unwrap();
        let pending = w.grad().unwrap();
        optimizer.zero_grad();
        assert_eq!(values(&pending), [3.0, 5.0]);
        for _ in 0..2 {
            dot(&w, &x).backward().unwrap();
        }
        let evaluated = w.grad().unwrap();
        assert_eq!(values(&evaluated), [6.0, 10.0]);
        optimizer.zero_grad();
        assert!(w.grad().is_none());
        assert_eq!(values(&evaluated), [6.0, 10.0]);
        drop(w.mul(&x).unwrap());
        assert_eq!(values(&evaluated), [6.0, 10.0]);
    }
}

#[test]
fn a_view_of_a_parameter_outlives_it_and_its_updates() {
    for engine in engines() {
        let w = parameter(&engine, &[1.0, 2.0]);
        let x = engine.tensor(&[3.0, 5.0], [2]).unwrap();
        let view = w.detach().unwrap().keep();
        dot(&w, &x).backward().unwrap();
        sgd(&[&w], 1.0).step().unwrap();
        assert_eq!(values(&view), [1.0, 2.0]);
        let view = w.detach().unwrap();
        drop(w);
        assert_eq!(values(&view), [-2.0, -3.0]);
        assert_eq!(values(&x.add(&view).unwrap()), [1.0, 2.0]);
    }
}

#[test]
fn a_gradient_may_go_into_the_next_loss() {
    for engine in engines() {
        let w = parameter(&engine, &[1.0, 2.0]);
        let x = engine.tensor(&[3.0, 5.0], [2]).unwrap();
        dot(&w, &x).backward().unwrap();
        // Whose gradient is the gradient that it is added to.
        dot(&w, &w.grad().unwrap()).backward().unwrap();
        assert_eq!(values(&w.grad().unwrap()), [6.0, 10.0]);
        dot(&w, &w.grad().unwrap()).backward().unwrap();
        assert_eq!(values(&w.grad().unwrap()), [12.0, 20.0]);
        sgd(&[&w], 1.0).step().unwrap();
        assert_eq!(values(&w), [-11.0, -18.0]);
        assert_eq!(values(&x), [3.0, 5.0]);
    }
}

#[test]
fn a_gradient_in_history_is_as_it_was_read() {
    // More than what is kept for whoever holds it.
    let many = 20_000;
    for engine in engines() {
        let w = parameter(&engine, &vec![1.0; many]);
        let x = engine.tensor(&vec![0.5; many], [many]).unwrap();
        w.mul(&x).unwrap().mean().unwrap().backward().unwrap();
        let y = dot(&w, &w.grad().unwrap());
        y.backward().unwrap();
        // Whose gradient is 2 y times what was read, to which y's own has been added since.
        y.mul(&y).unwrap().backward().unwrap();
        let read = 0.5 / many as f32;
        let grad = values(&w.grad().unwrap());
        assert!(
            grad.iter().all(|&grad| (grad / read - 3.0).abs() < 1e-3),
            "{:?}",
            &grad[..2]
        );
    }
}

#[test]
fn inputs_that_want_gradients_share_none() {
    for engine in engines() {
        let w = parameter(&engine, &[1.0, 2.0]);
        let x = engine.tensor(&[3.0, 5.0], [2]).unwrap();
        let x = x.requires_grad_().unwrap();
        for _ in 0..2 {
            w.add(&x).unwrap().sum().unwrap().backward().unwrap();
            dot(&w, &x).backward().unwrap();
        }
        assert_eq!(values(&x.grad().unwrap()), [4.0, 6.0]);
        assert_eq!(values(&w.grad().unwrap()), [8.0, 12.0]);
        sgd(&[&w], 1.0).step().unwrap();
        assert_eq!(values(&x.grad().unwrap()), [4.0, 6.0]);
        assert_eq!(values(&x), [3.0, 5.0]);
    }
}
