//! `grad`, gradients of gradients, and the public checks of both.

use crate::models::Random;
use crate::share::some;
use highwater::optim::{Sgd, SgdOptions};
use highwater::prelude::*;
use highwater::{
    DType, GradOptions, GradcheckOptions, grad, grad_of_used, grad_with, gradcheck, gradgradcheck,
};

const CREATE: GradOptions<'static> = GradOptions {
    grad_outputs: None,
    create_graph: true,
};

fn engine() -> Engine {
    Engine::builder().memory(256 << 20).seed(4).build().unwrap()
}

fn leaf(engine: &Engine, values: &[f32]) -> Tensor {
    let leaf = engine.tensor(values, [values.len()]).unwrap();
    leaf.requires_grad_().unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// Random chains of operations of several inputs, whose values stay where they are smooth.
fn program(random: &mut Random) -> impl Fn(&[Tensor]) -> Result<Tensor> + use<> {
    let steps: Vec<[usize; 3]> = (0..3 + random.below(5))
        .map(|_| [random.below(22), random.below(64), random.below(64)])
        .collect();
    move |inputs| {
        let mut values = inputs.to_vec();
        for &[op, a, b] in &steps {
            let (a, b) = (&values[a % values.len()], &values[b % values.len()]);
            values.push(applied(op, a, b)?);
        }
        let last = values.pop().unwrap_or_else(|| inputs[0].clone());
        values[1..]
            .iter()
            .try_fold(last, |sum, value| sum.add(value))
    }
}

/// One of the operations of `[4, 5]` tensors.
fn applied(op: usize, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let ones = || Tensor::from_slice(a.engine(), &[1.0_f64; 5], [5]);
    match op {
        0 => a.add(b),
        1 => a.sub(b),
        2 => a.mul(b),
        3 => a.div(&b.square()?.add_scalar(1.0)?),
        4 => a.tanh(),
        5 => a.sigmoid(),
        6 => a.mul_scalar(0.3)?.exp(),
        7 => a.square()?.add_scalar(0.5)?.log(),
        8 => a.square()?.add_scalar(0.5)?.sqrt(),
        9 => a.gelu(),
        10 => a.gelu_tanh(),
        11 => a.silu(),
        12 => a.swiglu(b),
        13 => a.softmax(),
        14 => a.matmul(&b.transpose(0, 1)?)?.matmul(b)?.mul_scalar(0.1),
        15 => a.linear(
            &b.narrow(0, 0, 1)?.expand([5, 5])?,
            Some(&b.sum_dims(&[0], false)?),
        ),
        16 => a.layer_norm(Some((&b.sum_dims(&[0], false)?, &ones()?)), 0.1),
        17 => a.rms_norm(Some(&b.sum_dims(&[0], false)?), 0.1),
        18 => a.mean_dims(&[1], true)?.mul(b),
        19 => Tensor::cat(&[&a.narrow(1, 3, 2)?, &b.narrow(1, 0, 3)?], 1),
        20 => {
            let rows = a.engine().indices(&[3, 0, 3, 1], [4])?;
            a.embedding(&rows)?.mul(b)
        }
        _ => a.transpose(0, 1)?.reshape([4, 5])?.mul(b),
    }
}

fn inputs(engine: &Engine, random: &mut Random) -> Vec<Tensor> {
    let mut one = || {
        let numbers: Vec<f64> = (0..20)
            .map(|_| random.below(2000) as f64 / 1000.0 - 1.0)
            .collect();
        Tensor::from_slice(engine, &numbers, [4, 5]).unwrap()
    };
    vec![one(), one()]
}

/// First and second gradients of random programs beside differences.
#[test]
fn random_programs_twice() {
    let engine = engine();
    let mut random = Random(11);
    let options = GradcheckOptions {
        atol: 1e-4,
        ..GradcheckOptions::default()
    };
    for seed in some(0..60) {
        let program = program(&mut random);
        let inputs = inputs(&engine, &mut random);
        gradcheck(&program, &inputs, options).unwrap_or_else(|error| panic!("{seed}: {error}"));
        gradgradcheck(&program, &inputs, options).unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
}

/// A gradient that is wrong is found: the check is not one that cannot fail.
#[test]
fn a_wrong_gradient_is_told() {
    let engine = engine();
    let x = Tensor::from_slice(&engine, &[0.5_f64, 2.0], [2]).unwrap();
    let wrong = |x: &[Tensor]| x[0].square()?.add(&x[0].detach()?);
    let error = gradcheck(wrong, &[x], GradcheckOptions::default()).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("input 0 has at its element 0 the gradient"),
        "{error}"
    );
}

#[test]
fn grad_leaves_parameters_alone_and_the_graph_there() {
    let engine = engine();
    let w = Parameter::new(&engine, [2], |w| w.copy_from_slice(&[3.0, 4.0])).unwrap();
    let x = leaf(&engine, &[1.0, 2.0]);
    let y = w.mul(&x).unwrap();
    let loss = y.square().unwrap().sum().unwrap();
    let grads = grad(&loss, &[&x, &w, &y]).unwrap();
    assert_eq!(numbers(&grads[2]), [6.0, 16.0]);
    assert_eq!(numbers(&grads[0]), [18.0, 64.0]);
    assert_eq!(numbers(&grads[1]), [6.0, 32.0]);
    assert!(w.grad().is_none() && x.grad().is_none());
    assert!(!grads[0].requires_grad().unwrap());
    loss.backward().unwrap();
    assert_eq!(numbers(&w.grad().unwrap()), [6.0, 32.0]);
    assert_eq!(numbers(&x.grad().unwrap()), [18.0, 64.0]);
}

/// What a loss is divided by its own gradient's size, several times differentiated.
#[test]
fn third_derivatives() {
    let engine = engine();
    let x = leaf(&engine, &[0.5, 2.0]);
    let y = x.square().unwrap().square().unwrap().sum().unwrap();
    let first = grad_with(&[&y], &[&x], CREATE).unwrap().remove(0);
    let first = first.sum().unwrap();
    let second = grad_with(&[&first], &[&x], CREATE).unwrap().remove(0);
    let second = second.sum().unwrap();
    let third = grad(&second, &[&x]).unwrap().remove(0);
    assert_eq!(numbers(&third), [12.0, 48.0]);
}

/// A gradient penalty inside a step, under the least budget and with plenty: the same bits, and the update
/// that differences of the penalised loss would make.
#[test]
fn a_gradient_penalty_trains_under_any_budget() {
    let step = |engine: &Engine| {
        let w = Parameter::new(engine, [8, 8], |w| {
            for (i, w) in w.iter_mut().enumerate() {
                *w = (i as f32 * 0.37).sin() * 0.4;
            }
        })
        .unwrap();
        let mut optimizer = Sgd::new(
            vec![w.clone()],
            SgdOptions {
                lr: 0.1,
                ..SgdOptions::default()
            },
        )
        .unwrap();
        for i in 0..3 {
            let x: Vec<f32> = (0..32).map(|k| ((k + i) as f32 * 0.71).cos()).collect();
            let x = engine.tensor(&x, [4, 8]).unwrap().requires_grad_().unwrap();
            let y = x.matmul(&w).unwrap().tanh().unwrap();
            let score = y.matmul(&w).unwrap().sum().unwrap();
            let slope = grad_with(&[&score], &[&x], CREATE).unwrap().remove(0);
            let penalty = slope.square().unwrap().sum().unwrap();
            let loss = score.add(&penalty.mul_scalar(0.5).unwrap()).unwrap();
            loss.backward().unwrap();
            optimizer.step().unwrap();
        }
        w.to_vec::<f32>().unwrap()
    };
    let plenty = step(&engine());
    let mut ran = 0;
    for kib in [2, 3, 4, 6, 8, 16, 64] {
        let engine = Engine::builder().arena(kib << 10).seed(4).build();
        let tight =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&engine.unwrap())));
        if let Ok(tight) = tight {
            ran += 1;
            assert!(
                tight
                    .iter()
                    .zip(&plenty)
                    .all(|(a, b)| a.to_bits() == b.to_bits()),
                "{kib} KiB"
            );
        }
    }
    assert!(ran >= 2, "{ran} budgets ran");
}

#[test]
fn several_outputs_add_up() {
    let engine = engine();
    let x = leaf(&engine, &[1.0, 2.0, 3.0]);
    let a = x.square().unwrap();
    let b = x.mul_scalar(2.0).unwrap();
    let (of_a, of_b) = (
        engine.tensor(&[1.0, 0.0, 2.0], [3]).unwrap(),
        engine.tensor(&[0.0, 1.0, 1.0], [3]).unwrap(),
    );
    let options = GradOptions {
        grad_outputs: Some(&[&of_a, &of_b]),
        create_graph: false,
    };
    let grads = grad_with(&[&a, &b], &[&x], options).unwrap();
    assert_eq!(numbers(&grads[0]), [2.0, 2.0, 14.0]);
    a.backward_with(&of_a).unwrap();
    assert_eq!(numbers(&x.grad().unwrap()), [2.0, 0.0, 12.0]);
}

#[test]
fn what_cannot_be_answered_is_told() {
    let engine = engine();
    let (x, other) = (leaf(&engine, &[1.0, 2.0]), leaf(&engine, &[1.0]));
    let plain = engine.tensor(&[1.0, 2.0], [2]).unwrap();
    let y = x.square().unwrap().mul(&plain).unwrap();
    let loss = y.sum().unwrap();
    let told = |result: Result<Vec<Tensor>>, what: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    told(grad(&loss, &[&x, &other]), "no output depends on input 1");
    told(grad(&loss, &[&plain]), "input 0 does not require gradients");
    told(grad(&y, &[&x]), "expected one element");
    told(
        grad(
            &loss,
            &[&x.reshape([2, 1]).unwrap().narrow(0, 0, 1).unwrap()],
        ),
        "is a view",
    );
    told(grad_with(&[], &[&x], GradOptions::default()), "0 outputs");
    let grads = grad_of_used(&[&loss], &[&other, &x], GradOptions::default()).unwrap();
    assert!(grads[0].is_none() && grads[1].is_some());
    let short = engine.tensor(&[1.0], [1]).unwrap();
    let error = y.backward_with(&short).unwrap_err().to_string();
    assert!(
        error.contains("a gradient of shape [1] for a result of shape [2]"),
        "{error}"
    );
    let half = plain.to_dtype(DType::BF16).unwrap();
    let error = y.backward_with(&half).unwrap_err().to_string();
    assert!(error.contains("bfloat16"), "{error}");
}
