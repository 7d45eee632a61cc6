//! Operators are the methods of the same meaning, bit for bit, and errors of theirs are errors.

use highwater::{Engine, Error, Parameter, Tensor};

fn engine() -> Engine {
    Engine::builder().threads(1).arena(1 << 20).build().unwrap()
}

fn values(tensor: highwater::Result<Tensor>) -> Vec<f32> {
    tensor.unwrap().to_vec().unwrap()
}

#[test]
fn operators_are_their_methods() {
    let engine = engine();
    let a = engine.tensor(&[1.0, -2.5, 3.7], [3]).unwrap();
    let b = engine.tensor(&[0.3, 7.0, -1.1], [3]).unwrap();
    assert_eq!(values(&a + &b), values(a.add(&b)));
    assert_eq!(values(&a - &b), values(a.sub(&b)));
    assert_eq!(values(&a * &b), values(a.mul(&b)));
    assert_eq!(values(&a / &b), values(a.div(&b)));
    assert_eq!(values(a.clone() + b.clone()), values(&a + &b));
    assert_eq!(values(&a + b.clone()), values(a.clone() + &b));
    assert_eq!(values(-&a), values(a.neg()));
    assert_eq!(values(-a.clone()), [-1.0, 2.5, -3.7]);
}

#[test]
fn numbers_stand_on_both_sides() {
    let engine = engine();
    let a = engine.tensor(&[1.0, -2.5, 3.7], [3]).unwrap();
    let each = |f: fn(f32) -> f32| [1.0_f32, -2.5, 3.7].map(f);
    assert_eq!(values(&a + 0.7), each(|x| x + 0.7));
    assert_eq!(values(&a - 0.7), each(|x| x - 0.7));
    assert_eq!(values(&a * 0.7), each(|x| x * 0.7));
    assert_eq!(values(&a / 0.7), each(|x| x / 0.7));
    assert_eq!(values(0.7 + &a), each(|x| 0.7 + x));
    assert_eq!(values(0.7 - &a), each(|x| 0.7 - x));
    assert_eq!(values(0.7 * &a), each(|x| 0.7 * x));
    assert_eq!(values(0.7 / &a), each(|x| 0.7 / x));
    assert_eq!(values(0.7 / a.clone()), values(0.7 / &a));
}

#[test]
fn results_are_operands_and_errors_pass_through() {
    let engine = engine();
    let x = engine.tensor(&[1.0, 2.0, 3.0, 4.0], [2, 2]).unwrap();
    let w = engine.tensor(&[0.5, 0.25], [2]).unwrap();
    let b = engine.tensor(&[1.0], [1]).unwrap();
    assert_eq!(values(&x * &w + &b), [1.5, 1.5, 2.5, 2.0]);
    assert_eq!(values(&b - &x * &w), [0.5, 0.5, -0.5, 0.0]);
    assert_eq!(
        values((&x * &w).unwrap() + (&b * &w)),
        [1.0, 0.75, 2.0, 1.25]
    );
    let wrong = engine.tensor(&[1.0; 3], [3]).unwrap();
    let line = line!() + 1;
    let error = (&x * &wrong + &b - &w).unwrap_err();
    let location = error.location().unwrap();
    assert!(matches!(error, Error::Op { .. }), "{error}");
    assert_eq!((location.file(), location.line()), (file!(), line));
}

#[test]
fn gradients_flow_through_operators() {
    let engine = engine();
    let x = engine
        .tensor(&[2.0, 4.0], [2])
        .unwrap()
        .requires_grad_()
        .unwrap();
    let loss = ((&x * &x + &x).unwrap() / 2.0).unwrap().sum().unwrap();
    loss.backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [2.5, 4.5]);
    assert_eq!(loss.item().unwrap(), 13.0);
}

#[test]
fn parameters_are_operands() {
    let engine = engine();
    let w = Parameter::new(&engine, [2], |w| w.copy_from_slice(&[2.0, -4.0])).unwrap();
    let x = engine.tensor(&[1.0, 8.0], [2]).unwrap();
    assert_eq!(values(&w + &x), [3.0, 4.0]);
    assert_eq!(values(&x - &w), [-1.0, 12.0]);
    assert_eq!(values(&w * &w), [4.0, 16.0]);
    assert_eq!(values(&w / x.clone()), [2.0, -0.5]);
    assert_eq!(values(x.clone() * &w), [2.0, -32.0]);
    assert_eq!(values(&x * &w + &w), [4.0, -36.0]);
    assert_eq!(values(&w - &x * &w), [0.0, 28.0]);
    assert_eq!(values(&w * 0.5), [1.0, -2.0]);
    assert_eq!(values(1.0 - &w), [-1.0, 5.0]);
    assert_eq!(values(-&w), [-2.0, 4.0]);
    (&w * &x + &w).unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(w.grad().unwrap().to_vec::<f32>().unwrap(), [2.0, 9.0]);
}
