//! Functions whose backward is the user's: numbers, how often closures are called, budgets, and what is refused.

use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::prelude::*;
use highwater::{
    Builder, DType, Error, FunctionContext, GradOptions, GradcheckOptions, checkpoint,
    custom_gradient, grad, grad_of_used, grad_with, gradcheck, gradgradcheck,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn engine() -> Engine {
    Engine::builder().arena(8 << 20).seed(4).build().unwrap()
}

fn parameter(engine: &Engine, values: &[f32]) -> Parameter {
    Parameter::new(engine, [values.len()], |w| w.copy_from_slice(values)).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

fn assert_close(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!(
            (got - want).abs() <= 2e-6 * (1.0 + want.abs()),
            "{got} for {want}"
        );
    }
}

/// A function of one tensor whose gradient is made from the result's.
fn with_grad(
    x: &Tensor,
    forward: impl FnOnce(&Tensor) -> Result<Tensor>,
    backward: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let forward = |x: &[Tensor]| Ok(vec![forward(&x[0])?]);
    let backward = move |of: &FunctionContext| Ok(vec![of.grad(0).map(&backward).transpose()?]);
    Ok(custom_gradient(&[x], forward, backward)?.remove(0))
}

#[test]
fn a_straight_through_estimator_rounds_and_passes() {
    let w = parameter(&engine(), &[0.4, 2.6, -1.2]);
    let y = with_grad(&w, Tensor::round, |grad| Ok(grad.clone())).unwrap();
    assert!(y.requires_grad().unwrap());
    y.square().unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(numbers(&y), [0.0, 3.0, -1.0]);
    assert_eq!(numbers(&w.grad().unwrap()), [0.0, 6.0, -2.0]);
}

#[test]
fn a_gradient_is_reversed() {
    let w = parameter(&engine(), &[1.0, -2.0]);
    let y = with_grad(&w, |x| Ok(x.clone()), |grad| grad.mul_scalar(-0.5)).unwrap();
    // The tensor itself is as it was.
    let loss = y.square().unwrap().add(&w).unwrap().sum().unwrap();
    loss.backward().unwrap();
    assert_eq!(numbers(&y), [1.0, -2.0]);
    assert_eq!(numbers(&w.grad().unwrap()), [0.0, 3.0]);
}

#[test]
fn a_gradient_is_clipped() {
    let w = parameter(&engine(), &[1.0, -2.0, 0.1]);
    let clip = |grad: &Tensor| grad.clamp(-1.0, 1.0);
    let y = with_grad(&w, |x| Ok(x.clone()), clip).unwrap();
    y.square().unwrap().sum().unwrap().backward().unwrap();
    assert_close(&numbers(&w.grad().unwrap()), &[1.0, -1.0, 0.2]);
}

/// Several inputs and outputs, one of them of whole numbers.
fn mix(x: &Tensor, w: &Tensor, k: &Tensor) -> Result<Vec<Tensor>> {
    let forward = |of: &[Tensor]| {
        let (x, w) = (&of[0], &of[1]);
        let y = (x * w)?.exp()?;
        let count = y.gt_scalar(1.0)?.to_dtype(DType::I64)?;
        Ok(vec![y, x.sigmoid()?, count])
    };
    let backward = |of: &FunctionContext| {
        let [x, w, _] = of.inputs() else {
            unreachable!("three inputs")
        };
        let [y, s, _] = of.outputs() else {
            unreachable!("three outputs")
        };
        let gy = match of.grad(0) {
            Some(gy) => gy.mul(y)?,
            None => y.zeros_like()?,
        };
        let mut gx = gy.mul(w)?;
        if let Some(gs) = of.grad(1) {
            gx = (gx + gs.mul(s)?.mul(&(1.0 - s)?)?)?;
        }
        let gw = gy.mul(x)?.sum_dims(&[0], false)?;
        assert!(of.needs(0) && !of.needs(2) && of.grad(2).is_none());
        Ok(vec![Some((gx * 2.0)?), Some(gw), None])
    };
    custom_gradient(&[x, w, k], forward, backward)
}

fn of_mix(engine: &Engine) -> (Tensor, Tensor, Tensor) {
    let leaf = |data: &[f32], shape: &[usize]| {
        let tensor = engine.tensor(data, shape).unwrap();
        tensor.requires_grad_().unwrap()
    };
    (
        leaf(&[0.5, -1.0, 0.25, 1.5, 0.75, -0.5], &[2, 3]),
        leaf(&[1.0, -0.5, 2.0], &[3]),
        engine.indices(&[1, 2, 3], [3]).unwrap(),
    )
}

/// The numbers of the same `torch.autograd.Function` in PyTorch 2.15:
/// `forward` returns `exp(x * w)`, `sigmoid(x)` and `(y > 1).long()`, `backward` what stands above.
#[test]
fn numbers_are_those_of_pytorch() {
    for engine in [engine(), Engine::eager().arena(8 << 20).build().unwrap()] {
        let (x, w, k) = of_mix(&engine);
        let outputs = mix(&x, &w, &k).unwrap();
        assert_eq!(outputs[2].to_vec::<i64>().unwrap(), [1, 1, 1, 1, 0, 0]);
        assert!(!outputs[2].requires_grad().unwrap());
        let weights = engine.tensor(&[1.0, 2.0, 3.0], [3]).unwrap();
        let loss = outputs[0].square().unwrap().sum().unwrap();
        let loss = loss
            .add(&outputs[1].mul(&weights).unwrap().sum().unwrap())
            .unwrap();
        loss.backward().unwrap();
        assert_close(&[loss.item().unwrap()], &[35.00351]);
        let want = [
            11.343_134,
            -4.650_116,
            23.223_059,
            80.64044,
            -0.073_153_2,
            2.492_704_4,
        ];
        assert_close(&numbers(&x.grad().unwrap()), &want);
        assert_close(
            &numbers(&w.grad().unwrap()),
            &[62.97489, -4.728_013_5, 1.223_805_5],
        );
    }
}

/// The second gradient goes through the closure's operations, and through the output that they read: as in PyTorch.
#[test]
fn the_second_gradient_is_that_of_pytorch() {
    let engine = engine();
    let want = [
        43.492_508,
        -5.436_563_5,
        347.94006,
        321.3686,
        -0.944_733_14,
        17.322_918,
    ];
    let (x, w, k) = of_mix(&engine);
    let create_graph = GradOptions {
        create_graph: true,
        ..Default::default()
    };
    let y = mix(&x, &w, &k).unwrap().remove(0);
    let total = y.sum().unwrap();
    let first = grad_with(&[&total], &[&x], create_graph).unwrap().remove(0);
    let second = grad(&first.square().unwrap().sum().unwrap(), &[&x]).unwrap();
    assert_close(&numbers(&second[0]), &want);
}

/// An output that nobody holds any more, and that a read has dropped from the graph, is there for the closure, with
/// its history.
#[test]
fn outputs_that_nobody_holds_are_saved() {
    let engine = engine();
    let x = parameter(&engine, &[0.5, -0.25]);
    let both = custom_gradient(
        &[&x],
        |x| Ok(vec![x[0].mul_scalar(1.0)?, x[0].exp()?]),
        |of| {
            // The second output has no gradient of its own where nothing depends on it.
            let mut grad =
                of.outputs()[1].mul(of.grad(0).unwrap_or(&of.outputs()[1].zeros_like()?))?;
            if let Some(second) = of.grad(1) {
                grad = (grad + second.mul(&of.outputs()[1])?)?;
            }
            Ok(vec![Some(grad)])
        },
    )
    .unwrap();
    let y = both.into_iter().next().unwrap().sum().unwrap();
    y.item().unwrap();
    let create_graph = GradOptions {
        create_graph: true,
        ..Default::default()
    };
    // exp(x), and of that again exp(x).
    let first = grad_with(&[&y], &[&x], create_graph).unwrap().remove(0);
    let second = grad(&first.sum().unwrap(), &[&x]).unwrap().remove(0);
    let want = [0.5_f32.exp(), (-0.25_f32).exp()];
    assert_close(&numbers(&first), &want);
    assert_close(&numbers(&second), &want);
}

#[test]
fn gradients_agree_with_differences() {
    let engine = engine();
    let x = Tensor::from_slice(&engine, &[0.3, -1.2, 2.0], [3]).unwrap();
    let cube = |x: &[Tensor]| {
        let cube = custom_gradient(
            &[&x[0]],
            |x| Ok(vec![x[0].pow_scalar(3.0)?]),
            |of| {
                let slope = (of.inputs()[0].square()? * 3.0)?;
                Ok(vec![of.grad(0).map(|grad| grad.mul(&slope)).transpose()?])
            },
        )?;
        Ok(cube[0].clone())
    };
    let x = [x.to_dtype(DType::F64).unwrap()];
    gradcheck(cube, &x, GradcheckOptions::default()).unwrap();
    gradgradcheck(cube, &x, GradcheckOptions::default()).unwrap();
}

/// What `grad` asks for by name: a gradient where the numbers do not depend on the input at all, one of the
/// function's result, and none of what nothing comes of.
#[test]
fn gradients_are_found_by_name() {
    let engine = engine();
    let (x, other) = (parameter(&engine, &[1.0, 2.0]), parameter(&engine, &[3.0]));
    let ones = custom_gradient(
        &[&x, &other],
        |x| Ok(vec![x[0].ones_like()?]),
        |of| {
            assert!(of.needs(0) && !of.needs(1));
            Ok(vec![of.grad(0).cloned(), None])
        },
    )
    .unwrap()
    .remove(0);
    let total = ones.mul_scalar(3.0).unwrap().sum().unwrap();
    let found = grad(&total, &[&x, &ones]).unwrap();
    assert_eq!(numbers(&found[0]), [3.0, 3.0]);
    assert_eq!(numbers(&found[1]), [3.0, 3.0]);
    let apart = parameter(&engine, &[1.0]);
    let found = grad_of_used(&[&total], &[&apart], GradOptions::default()).unwrap();
    assert!(found[0].is_none());
    // A hook on the result sees the gradient before the function does.
    let y = with_grad(&x, |x| x.mul_scalar(1.0), |grad| grad.mul_scalar(2.0)).unwrap();
    y.register_hook(|grad| grad.add_scalar(1.0).map(Some))
        .unwrap();
    y.sum().unwrap().backward().unwrap();
    assert_eq!(numbers(&x.grad().unwrap()), [4.0, 4.0]);
}

#[test]
fn without_gradients_there_is_nothing_but_the_forward() {
    let engine = engine();
    let w = parameter(&engine, &[1.5]);
    let never = |_: &Tensor| -> Result<Tensor> { panic!("nothing to go back to") };
    let y = no_grad(|| with_grad(&w, Tensor::round, never)).unwrap();
    assert!(!y.requires_grad().unwrap());
    let plain = engine.tensor(&[1.5], [1]).unwrap();
    let y = with_grad(&plain, Tensor::round, never).unwrap();
    assert!(!y.requires_grad().unwrap());
    // Nor is a closure called by a read that only looks ahead.
    let y = with_grad(&w, Tensor::round, never).unwrap();
    assert_eq!(y.square().unwrap().sum().unwrap().item().unwrap(), 4.0);
}

/// The bits of the weight after some steps, how often nodes were recomputed, and the calls of closures.
fn train(builder: Builder, is_read: bool) -> Result<(Vec<u32>, u32, usize)> {
    let engine = builder.threads(2).seed(4).build()?;
    let w = Parameter::new(&engine, [32, 32], |w| {
        for (i, w) in w.iter_mut().enumerate() {
            *w = (i as f32 * 0.37).sin() * 0.3;
        }
    })?;
    let calls = Arc::new(AtomicUsize::new(0));
    let mut optimizer = Sgd::new(vec![w.clone()], SgdOptions::default())?;
    let x: Vec<f32> = (0..2048).map(|k| (k as f32 * 0.71).cos()).collect();
    let x = engine.tensor(&x, [64, 32])?;
    let mut recomputed = 0;
    for _ in 0..2 {
        let mut y = x.clone();
        for layer in 0..6 {
            y = y.matmul(&w)?;
            let calls = Arc::clone(&calls);
            let forward = |x: &[Tensor]| Ok(vec![x[0].tanh()?, x[0].sigmoid()?]);
            let backward = move |of: &FunctionContext| {
                calls.fetch_add(1, Ordering::Relaxed);
                let [t, s] = of.outputs() else { unreachable!() };
                let slope = (1.0 - t.square()?)?;
                let of_t = of.grad(0).map(|grad| grad.mul(&slope)).transpose()?;
                let of_s = match of.grad(1) {
                    Some(grad) => Some(grad.mul(s)?),
                    None => None,
                };
                Ok(vec![match (of_t, of_s) {
                    (Some(a), Some(b)) => Some((a + b)?),
                    (a, b) => a.or(b),
                }])
            };
            let run = |y: &Tensor| custom_gradient(&[y], forward, backward);
            let made = if layer == 3 {
                checkpoint(run, &y)?
            } else {
                run(&y)?
            };
            y = if layer % 2 == 0 {
                made[0].add(&made[1])?
            } else {
                made[0].clone()
            };
        }
        let loss = y.square()?.mean()?;
        if is_read {
            loss.item()?;
        }
        loss.backward()?;
        optimizer.step()?;
        recomputed += engine.last_step().recomputed_nodes;
    }
    let bits = w.to_vec::<f32>()?.iter().map(|w| w.to_bits()).collect();
    Ok((bits, recomputed, calls.load(Ordering::Relaxed)))
}

#[test]
fn a_budget_changes_no_bit_and_calls_no_closure_again() {
    let (want, _, calls) = train(Engine::builder().arena(64 << 20), false).unwrap();
    assert_eq!(calls, 12);
    let (mut recomputed, mut fitting) = (0, 0);
    // From what does not fit over the floor to plenty.
    for kib in (28..140).step_by(12) {
        for is_read in [false, true] {
            match train(Engine::builder().arena(kib << 10), is_read) {
                Ok((got, again, calls)) => {
                    assert!(got == want, "{kib} KiB");
                    assert_eq!(calls, 12, "{kib} KiB");
                    recomputed += again;
                    fitting += 1;
                }
                Err(Error::OverBudget { .. } | Error::State { .. }) => assert_eq!(fitting, 0),
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(recomputed > 0 && fitting > 0);
    assert!(train(Engine::eager().arena(64 << 20), false).unwrap().0 == want);
}

#[test]
fn parameters_may_be_in_half_precision() {
    let engine = engine();
    for dtype in [DType::BF16, DType::F16, DType::F64] {
        let x = engine
            .tensor(&[0.4, 2.6], [2])
            .unwrap()
            .requires_grad_()
            .unwrap();
        let low = x.to_dtype(dtype).unwrap();
        let y = with_grad(&low, Tensor::round, |grad| grad.mul_scalar(0.5)).unwrap();
        assert_eq!(y.dtype(), dtype);
        let loss = y
            .to_dtype(DType::F32)
            .unwrap()
            .square()
            .unwrap()
            .sum()
            .unwrap();
        loss.backward().unwrap();
        assert_eq!(numbers(&x.grad().unwrap()), [0.0, 3.0], "{dtype}");
    }
}

#[test]
fn what_is_refused_is_told() {
    type Backward = fn(&FunctionContext) -> Result<Vec<Option<Tensor>>>;
    let engine = engine();
    let w = parameter(&engine, &[1.0, 2.0]);
    let told = |backward: Backward, what: &str| {
        let y = custom_gradient(&[&w], |x| Ok(vec![x[0].square()?]), backward).unwrap();
        let loss = y[0].sum().unwrap();
        let error = loss.backward().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        drop((y, loss));
        // The engine goes on.
        let error = parameter(&engine, &[3.0]);
        error.square().unwrap().sum().unwrap().backward().unwrap();
        assert_eq!(numbers(&error.grad().unwrap()), [6.0]);
    };
    told(|_| Ok(Vec::new()), "returned 0 gradients for 1 inputs");
    told(
        |of| Ok(vec![Some(of.inputs()[0].sum()?)]),
        "returned a gradient of float32 [] for input 0 of float32 [2]",
    );
    told(
        |of| Ok(vec![Some(of.inputs()[0].to_dtype(DType::BF16)?)]),
        "returned a gradient of bfloat16",
    );
    told(
        |of| of.outputs()[0].to_vec::<f32>().map(|_| vec![None]),
        "the backward of custom_gradient() had something computed",
    );
    told(
        |_| {
            let other = Engine::builder().arena(1 << 20).build()?;
            Ok(vec![Some(other.tensor(&[1.0, 1.0], [2])?)])
        },
        "is of another engine",
    );
    let error = custom_gradient(&[], |_| Ok(Vec::new()), |_| Ok(Vec::new())).unwrap_err();
    assert!(error.to_string().contains("without inputs"), "{error}");
    let error = with_grad(&w, |x| x.reshape([3]), |grad| Ok(grad.clone())).unwrap_err();
    assert!(error.to_string().contains("reshape"), "{error}");
    // None for an input that wants one is no gradient.
    let y = custom_gradient(&[&w], |x| Ok(vec![x[0].square()?]), |_| Ok(vec![None])).unwrap();
    y[0].sum().unwrap().backward().unwrap();
    assert!(w.grad().is_none());
}
