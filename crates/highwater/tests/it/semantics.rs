//! Gradients, steps and errors as users of PyTorch expect them.

use crate::models::{Model, PINNED_GPT, Random, SMALL_GPT};
use crate::train::{PLAIN, Recipe, assert_same_bits, train};
use highwater::nn::{Linear, join};
use highwater::op::{Args, Cost, DTypes, Effect, KernelError, Op, OpError, Spec};
use highwater::op::{SmallVec, smallvec};
use highwater::optim::{
    AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm_, grad_norm,
};
use highwater::{Engine, Error, Module, Parameter, Result, Tensor, no_grad, scope};
use std::collections::BTreeMap;
use std::hash::Hasher;

fn engine() -> Engine {
    Engine::builder().seed(3).build().unwrap()
}

fn parameter(engine: &Engine, values: &[f32]) -> Parameter {
    Parameter::new(engine, [values.len()], |to| to.copy_from_slice(values)).unwrap()
}

fn sgd(parameters: &[&Parameter], lr: f64) -> Sgd {
    let parameters = parameters.iter().map(|&p| p.clone()).collect();
    Sgd::new(
        parameters,
        SgdOptions {
            lr,
            ..SgdOptions::default()
        },
    )
    .unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

fn grad(parameter: &Parameter) -> Option<Vec<f32>> {
    parameter.grad().map(|grad| values(&grad))
}

/// `sum(p * weights)`, whose gradient is `weights`.
fn weighted(p: &Tensor, weights: &[f32]) -> Tensor {
    let weights = p.engine().tensor(weights, p.shape().clone()).unwrap();
    p.mul(&weights).unwrap().sum().unwrap()
}

#[test]
fn gradients_of_several_backwards_add_up() {
    let engine = engine();
    let p = parameter(&engine, &[1.0, 2.0]);
    assert_eq!(grad(&p), None);
    weighted(&p, &[3.0, 4.0]).backward().unwrap();
    assert_eq!(grad(&p).unwrap(), [3.0, 4.0]);
    weighted(&p, &[10.0, 20.0]).backward().unwrap();
    assert_eq!(grad(&p).unwrap(), [13.0, 24.0]);
    weighted(&p, &[0.5, 0.0]).backward().unwrap();
    weighted(&p, &[0.0, 0.5]).backward().unwrap();
    assert_eq!(grad(&p).unwrap(), [13.5, 24.5]);
    sgd(&[&p], 2.0).step().unwrap();
    assert_eq!(values(&p), [-26.0, -47.0]);
}

#[test]
fn accumulated_gradients_are_those_of_the_sum_of_the_losses() {
    let step = |accumulate: bool| {
        let engine = engine();
        let layer = Linear::new(&engine, 8, 8, true).unwrap();
        let mut optimizer = Sgd::new(layer.parameters(), SgdOptions::default()).unwrap();
        let loss = |seed| {
            let x = engine.tensor(&Random(seed).values(32), [4, 8]).unwrap();
            let y = layer.forward(&x).unwrap();
            y.mul(&y).unwrap().sum().unwrap()
        };
        if accumulate {
            (0..3).for_each(|seed| loss(seed).backward().unwrap());
        } else {
            let sum = loss(0).add(&loss(1)).unwrap().add(&loss(2)).unwrap();
            sum.backward().unwrap();
        }
        optimizer.step_keep_grads().unwrap();
        layer
            .parameters()
            .iter()
            .flat_map(|p| grad(p).unwrap())
            .collect::<Vec<_>>()
    };
    for (one, other) in step(true).iter().zip(step(false)) {
        assert!(
            (one - other).abs() <= 1e-5 * other.abs().max(1.0),
            "{one}, {other}"
        );
    }
}

#[test]
fn zero_grad_forgets_pending_and_evaluated_gradients() {
    let engine = engine();
    let p = parameter(&engine, &[1.0, 2.0]);
    let mut optimizer = sgd(&[&p], 1.0);
    weighted(&p, &[3.0, 4.0]).backward().unwrap();
    optimizer.zero_grad();
    assert_eq!(grad(&p), None);
    weighted(&p, &[3.0, 4.0]).backward().unwrap();
    weighted(&p, &[3.0, 4.0]).backward().unwrap();
    optimizer.zero_grad();
    assert_eq!(grad(&p), None);
    weighted(&p, &[5.0, 6.0]).backward().unwrap();
    assert_eq!(grad(&p).unwrap(), [5.0, 6.0]);
    optimizer.step().unwrap();
    assert_eq!(values(&p), [-4.0, -4.0]);
}

#[test]
fn a_step_takes_the_gradients_unless_told_to_keep_them() {
    let engine = engine();
    let p = parameter(&engine, &[1.0, 2.0]);
    let mut optimizer = sgd(&[&p], 1.0);
    weighted(&p, &[3.0, 4.0]).backward().unwrap();
    optimizer.step().unwrap();
    assert!(p.grad().is_none());
    // Without a gradient a step changes nothing.
    optimizer.step().unwrap();
    assert_eq!(values(&p), [-2.0, -2.0]);
    weighted(&p, &[3.0, 4.0]).backward().unwrap();
    optimizer.step_keep_grads().unwrap();
    assert_eq!(grad(&p).unwrap(), [3.0, 4.0]);
    assert_eq!(values(&p), [-5.0, -6.0]);
    // Kept gradients count in the next step, and are added to.
    weighted(&p, &[1.0, 1.0]).backward().unwrap();
    optimizer.step().unwrap();
    assert_eq!(values(&p), [-9.0, -11.0]);
    assert!(p.grad().is_none());
}

#[test]
fn detach_cuts_the_gradient() {
    let engine = engine();
    let p = parameter(&engine, &[1.0, 2.0]);
    let square = p.mul(&p).unwrap();
    let cut = square.detach().unwrap();
    assert!(square.requires_grad().unwrap() && !cut.requires_grad().unwrap());
    square
        .add(&cut.mul(&p).unwrap())
        .unwrap()
        .sum()
        .unwrap()
        .backward()
        .unwrap();
    // 2p + p^2, where the second factor is a constant.
    assert_eq!(grad(&p).unwrap(), [3.0, 8.0]);
    let none = no_grad(|| p.mul(&p).unwrap().sum().unwrap());
    assert!(!none.requires_grad().unwrap());
    assert!(matches!(none.backward(), Err(Error::Usage { .. })));
}

#[test]
fn gradients_of_leaves_equal_finite_differences() {
    let engine = engine();
    let weights = Random(9).values(12);
    let f = |x: &Tensor| -> Result<Tensor> {
        let w = engine.tensor(&weights, [3, 4])?;
        let h = x.linear(&w, None)?.tanh()?.layer_norm(None, 1e-2)?;
        h.mul(&h.sigmoid()?)?
            .softmax()?
            .mul(&x.sum_dims(&[1], true)?)?
            .gelu()?
            .mean()
    };
    let at = Random(4).values(8);
    let leaf = engine
        .tensor(&at, [2, 4])
        .unwrap()
        .requires_grad_()
        .unwrap();
    f(&leaf).unwrap().backward().unwrap();
    let gradient = values(&leaf.grad().expect("a gradient"));
    let step = 2e-3;
    for i in 0..at.len() {
        let value = |shift: f32| {
            let mut at = at.clone();
            at[i] += shift;
            f64::from(
                f(&engine.tensor(&at, [2, 4]).unwrap())
                    .unwrap()
                    .item()
                    .unwrap(),
            )
        };
        let difference = (value(step) - value(-step)) / f64::from(2.0 * step);
        let got = f64::from(gradient[i]);
        assert!(
            (got - difference).abs() < 1e-3,
            "{i}: {got}, not {difference}"
        );
    }
    // A second backward adds.
    f(&leaf).unwrap().backward().unwrap();
    let twice = values(&leaf.grad().expect("a gradient"));
    assert!(
        twice
            .iter()
            .zip(&gradient)
            .all(|(two, one)| (two - 2.0 * one).abs() < 1e-6)
    );
}

#[test]
fn frozen_parameters_stay() {
    let engine = engine();
    let layers = [(); 3].map(|()| Linear::new(&engine, 4, 4, true).unwrap());
    let all: Vec<Parameter> = layers.iter().flat_map(Module::parameters).collect();
    layers[1].requires_grad_(false);
    let before: Vec<_> = all.iter().map(|p| values(p)).collect();
    let mut optimizer = AdamW::new(all.clone(), AdamWOptions::default()).unwrap();
    let x = engine.tensor(&Random(1).values(8), [2, 4]).unwrap();
    let forward = || {
        let h = layers
            .iter()
            .try_fold(x.clone(), |h, layer| layer.forward(&h)?.tanh())
            .unwrap();
        h.sum().unwrap()
    };
    forward().backward().unwrap();
    let grads: Vec<bool> = all.iter().map(|p| p.grad().is_some()).collect();
    assert_eq!(grads, [true, true, false, false, true, true]);
    optimizer.step().unwrap();
    let changed = |before: &[Vec<f32>]| -> Vec<bool> {
        all.iter()
            .zip(before)
            .map(|(p, before)| values(p) != *before)
            .collect()
    };
    assert_eq!(changed(&before), grads);
    layers[1].requires_grad_(true);
    forward().backward().unwrap();
    optimizer.step().unwrap();
    assert_eq!(changed(&before), [true; 6]);
}

#[test]
fn backward_through_a_consumed_history_says_so() {
    let engine = engine();
    let p = parameter(&engine, &[1.0, 2.0]);
    let mut optimizer = sgd(&[&p], 1.0);
    let h = p.mul(&p).unwrap();
    h.sum().unwrap().backward().unwrap();
    optimizer.step().unwrap();
    // The value was small enough to stay; its history is gone.
    assert_eq!(values(&h), [1.0, 4.0]);
    let line = line!() + 1;
    let error = h.mul(&p).unwrap().sum().unwrap().backward().unwrap_err();
    let Error::HistoryConsumed {
        made_at, location, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(made_at.file().ends_with("semantics.rs"), "{made_at}");
    assert!(
        location
            .to_string()
            .contains(&format!("semantics.rs:{line}:")),
        "{location}"
    );
    assert!(p.grad().is_none());
    // Detached it is a constant, and the engine goes on.
    weighted(&h.detach().unwrap().mul(&p).unwrap(), &[1.0, 1.0])
        .backward()
        .unwrap();
    assert_eq!(grad(&p).unwrap(), [1.0, 4.0]);
    optimizer.step().unwrap();
    assert_eq!(values(&p), [-2.0, -6.0]);
}

#[test]
fn a_state_carried_from_step_to_step_must_be_detached() {
    for detach in [true, false] {
        let engine = engine();
        let p = parameter(&engine, &[1.0, 2.0]);
        let mut optimizer = sgd(&[&p], 0.1);
        let mut carried = engine.tensor(&[1.0, 1.0], [2]).unwrap();
        let mut step = || -> Result<()> {
            carried = carried.mul(&p)?.tanh()?;
            carried.sum()?.backward()?;
            optimizer.step()?;
            if detach {
                carried = carried.detach()?;
            }
            Ok(())
        };
        step().unwrap();
        let second = step();
        assert_eq!(
            matches!(second, Err(Error::HistoryConsumed { .. })),
            !detach,
            "{second:?}"
        );
        assert_eq!(second.is_ok(), detach);
    }
}

#[test]
fn backward_again_in_one_step_adds_again() {
    let engine = engine();
    let p = parameter(&engine, &[3.0]);
    let loss = p.mul(&p).unwrap().sum().unwrap();
    loss.backward().unwrap();
    loss.backward().unwrap();
    assert_eq!(grad(&p).unwrap(), [12.0]);
}

#[test]
fn wrong_uses_of_backward_are_refused() {
    let engine = engine();
    let p = parameter(&engine, &[3.0, 4.0]);
    let x = engine.tensor(&[1.0], [1]).unwrap();
    let wide = p.mul(&p).unwrap();
    for (error, says) in [
        (wide.backward().unwrap_err(), "one element"),
        (x.backward().unwrap_err(), "requires_grad"),
        (wide.requires_grad_().unwrap_err(), "without history"),
        (
            engine
                .indices(&[1], [1])
                .unwrap()
                .requires_grad_()
                .unwrap_err(),
            "float",
        ),
    ] {
        assert!(matches!(error, Error::Usage { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(says) && text.contains("semantics.rs"),
            "{text}"
        );
    }
    assert!(p.grad().is_none());
}

#[test]
fn tensors_of_two_engines_do_not_meet() {
    let (one, other) = (engine(), engine());
    let (p, q) = (parameter(&one, &[1.0]), parameter(&other, &[1.0]));
    assert!(matches!(p.add(&q), Err(Error::OtherEngine { .. })));
    let both = [p.clone(), q.clone()];
    q.set_name("other.weight");
    p.sum().unwrap().backward().unwrap();
    q.sum().unwrap().backward().unwrap();
    for refused in [
        Sgd::new(both.to_vec(), SgdOptions::default()).err(),
        clip_grad_norm_(&both, 1.0).err(),
        grad_norm(&both).err(),
    ] {
        let error = refused.unwrap();
        assert!(matches!(error, Error::OtherEngine { .. }), "{error}");
        assert!(error.to_string().contains("`other.weight`"), "{error}");
    }
    assert_eq!(grad(&p).unwrap(), [1.0]);
    assert_eq!(grad(&q).unwrap(), [1.0]);
}

#[test]
fn wrong_shapes_name_operation_module_and_line() {
    let engine = engine();
    let layer = Linear::new(&engine, 4, 4, true).unwrap();
    let x = engine.tensor(&[0.0; 6], [2, 3]).unwrap();
    let line = line!() + 1;
    let error = scope("h.3", || scope("mlp", || layer.forward(&x))).unwrap_err();
    let Error::Op {
        module, location, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(module, "h.3.mlp");
    assert!(
        location
            .to_string()
            .contains(&format!("semantics.rs:{line}:")),
        "{location}"
    );
    let text = error.to_string();
    for part in ["linear", "expected", "got", "[2, 3]"] {
        assert!(text.contains(part), "{text}");
    }
    // A parameter's name says where it belongs, if nobody else does.
    layer.name_parameters();
    layer.weight.set_name("encoder.layer.0.weight");
    let Error::Op { module, .. } = layer.forward(&x).unwrap_err() else {
        panic!()
    };
    assert_eq!(module, "encoder.layer.0");
    let errors = [
        engine.tensor(&[0.0; 5], [2, 3]).unwrap_err(),
        x.item().unwrap_err(),
        x.to_vec::<u32>().unwrap_err(),
        layer.weight.copy_from_slice(&[0.0; 3]).unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(&error, Error::Usage { location, .. } if location.file().ends_with("semantics.rs"))
        );
    }
}

/// Two steps of a least-squares GAN. `separate`: each player has its own graph and freezes nobody;
/// its gradients on the other's parameters are thrown away.
fn gan(separate: bool) -> Vec<Vec<f32>> {
    let engine = engine();
    let net = |inputs| Linear::new(&engine, inputs, 1, true).unwrap();
    let (generator, critic) = (net(4), net(1));
    let adamw = |net: &Linear| AdamW::new(net.parameters(), AdamWOptions::default()).unwrap();
    let (mut train_generator, mut train_critic) = (adamw(&generator), adamw(&critic));
    let distance = |scores: &Tensor, target: f64| -> Result<Tensor> {
        let error = scores.sub_scalar(target)?;
        error.mul(&error)?.mean()
    };
    for step in 0..3 {
        let noise = |seed| engine.tensor(&Random(seed).values(32), [8, 4]).unwrap();
        let fake = |seed| generator.forward(&noise(seed)).unwrap().tanh().unwrap();
        let real = engine
            .tensor(&Random(100 + step).values(8), [8, 1])
            .unwrap();
        let on_real = distance(&critic.forward(&real).unwrap(), 1.0).unwrap();
        let seen = if separate {
            fake(step)
        } else {
            fake(step).detach().unwrap()
        };
        let on_fake = distance(&critic.forward(&seen).unwrap(), 0.0).unwrap();
        on_real.add(&on_fake).unwrap().backward().unwrap();
        assert_eq!(generator.weight.grad().is_some(), separate);
        train_generator.zero_grad();
        train_critic.step().unwrap();
        critic.requires_grad_(separate);
        distance(&critic.forward(&fake(step)).unwrap(), 1.0)
            .unwrap()
            .backward()
            .unwrap();
        assert_eq!(critic.weight.grad().is_some(), separate);
        train_critic.zero_grad();
        train_generator.step().unwrap();
        critic.requires_grad_(true);
    }
    [generator, critic]
        .iter()
        .flat_map(Module::parameters)
        .map(|p| values(&p))
        .collect()
}

#[test]
fn a_gan_trains_the_same_frozen_or_not() {
    assert_eq!(gan(false), gan(true));
}

#[test]
fn a_loss_that_is_not_finite_stops_the_step_before_any_update() {
    let engine = engine();
    let layer = Linear::new(&engine, 4, 4, true).unwrap();
    let mut optimizer = AdamW::new(layer.parameters(), AdamWOptions::default()).unwrap();
    let x = |scale: f32| {
        let values: Vec<f32> = Random(1)
            .values(8)
            .iter()
            .map(|x| (x * x + 0.5) * scale)
            .collect();
        engine.tensor(&values, [2, 4]).unwrap()
    };
    let train = |scale| -> Result<Tensor> {
        let h = layer.forward(&x(1.0))?.tanh()?;
        let grown = scope("h.1", || {
            h.mul(&h)?.add_scalar(1.0)?.mul_scalar(scale)?.exp()
        })?;
        let loss = grown.mean()?;
        loss.backward()?;
        Ok(loss)
    };
    let moments = optimizer_state(&optimizer);
    let cells = || -> Vec<_> {
        layer
            .parameters()
            .iter()
            .chain(&moments)
            .map(|p| values(p))
            .collect()
    };
    train(1.0).unwrap();
    optimizer.step().unwrap();
    let before = cells();
    for clip in [false, true] {
        let loss = train(1000.0).unwrap();
        if clip {
            clip_grad_norm_(&layer.parameters(), 1.0).unwrap();
        }
        let error = optimizer.step().unwrap_err();
        let Error::NonFinite { what, node } = &error else {
            panic!("{error}")
        };
        assert!(what.contains("loss"), "{what}");
        assert!(
            node.contains("exp") && node.contains("h.1") && node.contains("semantics.rs"),
            "{node}"
        );
        assert!(engine.check_poison().is_ok());
        assert!(layer.weight.grad().is_none());
        drop(loss);
    }
    assert_eq!(cells(), before);
    assert_eq!(optimizer.steps(), 1);
    train(1.0).unwrap();
    optimizer.step().unwrap();
    assert!(values(&layer.weight).iter().all(|w| w.is_finite()));
    assert_ne!(values(&layer.weight), before[0]);
}

fn optimizer_state(optimizer: &AdamW) -> Vec<Parameter> {
    optimizer
        .state_dict()
        .into_iter()
        .map(|(_, moment)| moment)
        .collect()
}

#[test]
fn a_loss_that_was_read_and_is_not_finite_is_found_too() {
    let engine = engine();
    let p = parameter(&engine, &[1.0, 2.0]);
    let mut optimizer = sgd(&[&p], 1.0);
    let loss = scope("head", || p.sub_scalar(2.0)?.log()?.sum()).unwrap();
    assert!(!loss.item().unwrap().is_finite());
    loss.backward().unwrap();
    let Error::NonFinite { node, .. } = optimizer.step().unwrap_err() else {
        panic!()
    };
    assert!(node.starts_with("log in head at"), "{node}");
    assert_eq!(values(&p), [1.0, 2.0]);
}

#[test]
fn a_norm_that_is_not_finite_stops_the_step_too() {
    let engine = engine();
    let p = parameter(&engine, &[0.0, 4.0]);
    let mut optimizer = sgd(&[&p], 1.0);
    p.sqrt().unwrap().sum().unwrap().backward().unwrap();
    let norm = clip_grad_norm_(std::slice::from_ref(&p), 1.0).unwrap();
    let error = optimizer.step().unwrap_err();
    assert!(
        matches!(&error, Error::NonFinite { what, .. } if what.contains("norm")),
        "{error}"
    );
    drop(norm);
    assert_eq!(values(&p), [0.0, 4.0]);
    weighted(&p, &[3.0, 4.0]).backward().unwrap();
    let norm = clip_grad_norm_(std::slice::from_ref(&p), 1.0).unwrap();
    optimizer.step().unwrap();
    assert_eq!(norm.item().unwrap(), 5.0);
    let clipped = values(&p);
    assert!(
        (clipped[0] + 0.6).abs() < 1e-5 && (clipped[1] - 3.2).abs() < 1e-5,
        "{clipped:?}"
    );
}

#[test]
fn a_gradient_that_is_not_finite_stops_the_step_where_there_is_room_to_look() {
    let n = 20_000;
    let mut poisoned = Vec::new();
    for kib in (250..600).step_by(10) {
        let engine = Engine::builder().seed(3).arena(kib << 10).build().unwrap();
        let filled = |x: f32| Parameter::new(&engine, [n], |to| to.fill(x)).unwrap();
        let (p, q) = (filled(0.0), filled(1.0));
        let options = SgdOptions::default();
        let mut optimizer = Sgd::new(vec![q.clone(), p.clone()], options).unwrap();
        let bad = p.sqrt().unwrap().sum().unwrap();
        let loss = q.mul(&q).unwrap().sum().unwrap().add(&bad).unwrap();
        loss.backward().unwrap();
        let error = optimizer.step().unwrap_err();
        if matches!(error, Error::OverBudget { .. }) {
            assert!(poisoned.is_empty());
            continue;
        }
        assert!(
            error.to_string().contains("gradient is not finite"),
            "{error}"
        );
        poisoned.push(engine.check_poison().is_err());
        if poisoned.ends_with(&[true]) {
            assert_poisoned(&engine, &q, &mut optimizer);
            // Loading state into every cell makes it whole again.
            for cell in [&p, &q] {
                cell.copy_from_slice(&vec![1.0; n]).unwrap();
            }
            engine.clear_poison();
        } else {
            assert_eq!(loss.item().unwrap(), n as f32);
            let parameters = [values(&q), values(&p)].concat();
            assert!(parameters.iter().all(|x| *x == 0.0 || *x == 1.0));
        }
        q.sum().unwrap().backward().unwrap();
        optimizer.step().unwrap();
        assert!(values(&q).iter().all(|x| *x < 1.0));
    }
    // With little room updates come as soon as they can; from some budget on none comes too early.
    assert!(poisoned.is_sorted_by(|a, b| a >= b), "{poisoned:?}");
    assert!(
        poisoned.contains(&true) && poisoned.ends_with(&[false]),
        "{poisoned:?}"
    );
}

#[test]
fn a_summed_gradient_that_is_not_finite_stops_the_step_too() {
    let engine = engine();
    let p = parameter(&engine, &[0.0, 4.0]);
    let mut optimizer = sgd(&[&p], 1.0);
    for order in [[true, false], [false, true]] {
        for bad in order {
            let loss = if bad { p.sqrt() } else { p.mul(&p) };
            loss.unwrap().sum().unwrap().backward().unwrap();
        }
        let error = optimizer.step().unwrap_err();
        assert!(matches!(error, Error::NonFinite { .. }), "{error}");
        assert_eq!(values(&p), [0.0, 4.0]);
        optimizer.zero_grad();
        p.mul(&p).unwrap().sum().unwrap().backward().unwrap();
        optimizer.step().unwrap();
        assert_eq!(values(&p), [0.0, -4.0]);
        p.copy_from_slice(&[0.0, 4.0]).unwrap();
    }
}

#[track_caller]
fn assert_poisoned(engine: &Engine, parameter: &Parameter, optimizer: &mut dyn Optimizer) {
    let poisoned = |result: Result<()>| matches!(result, Err(Error::Poisoned(_)));
    assert!(poisoned(engine.check_poison()));
    assert!(poisoned(parameter.sum().map(drop)));
    assert!(poisoned(parameter.to_vec::<f32>().map(drop)));
    assert!(poisoned(parameter.with_bytes(drop_bytes)));
    assert!(poisoned(optimizer.step().map(drop)));
}

fn drop_bytes(_: &[u8]) {}

/// Writes half of its cell and stops.
#[derive(Debug)]
struct Halfway;

impl Op for Halfway {
    fn name(&self) -> &'static str {
        "halfway"
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, _inputs: &[Spec]) -> std::result::Result<SmallVec<[Spec; 2]>, OpError> {
        Ok(SmallVec::new())
    }

    fn cost(&self, _inputs: &[Spec], _outputs: &[Spec], _threads: usize) -> Cost {
        Cost::default()
    }

    fn effect(&self) -> Effect {
        Effect::WritesCell
    }

    fn writes(&self) -> SmallVec<[usize; 4]> {
        smallvec![0]
    }
}

fn halfway(_: &dyn Op, args: &mut Args<'_>) -> std::result::Result<(), KernelError> {
    args.inputs[0].slice_mut::<f32>()?[0] = 99.0;
    Err(KernelError::Unsupported {
        expected: "better days",
        got: "this".into(),
    })
}

#[test]
fn a_kernel_that_fails_between_updates_poisons_the_engine() {
    let engine = Engine::builder()
        .kernel("halfway", DTypes::F32, halfway)
        .build()
        .unwrap();
    let (p, q) = (
        parameter(&engine, &[1.0, 2.0]),
        parameter(&engine, &[1.0, 2.0]),
    );
    let mut optimizer = sgd(&[&q], 1.0);
    weighted(&q, &[1.0, 1.0]).backward().unwrap();
    scope("broken", || Tensor::apply(Halfway, &[&p])).unwrap();
    let error = optimizer.step().unwrap_err();
    let Error::Kernel {
        op,
        module,
        location,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((*op, module.as_str()), ("halfway", "broken"));
    assert!(location.file().ends_with("semantics.rs"), "{location}");
    assert_poisoned(&engine, &q, &mut optimizer);
    assert!(matches!(
        engine.tensor(&[1.0], [1]).unwrap().relu(),
        Err(Error::Poisoned(_))
    ));
}

#[test]
fn an_operation_without_a_kernel_is_refused_when_the_graph_is_built() {
    let engine = engine();
    let p = parameter(&engine, &[1.0, 2.0]);
    let error = Tensor::apply(Halfway, &[&p]).unwrap_err();
    assert!(
        error.to_string().contains("halfway has no cpu kernel"),
        "{error}"
    );
    assert_eq!(values(&p), [1.0, 2.0]);
}

#[test]
fn an_index_out_of_range_is_an_error_and_the_engine_goes_on() {
    let engine = engine();
    let table = Parameter::normal(&engine, [10, 4], 1.0).unwrap();
    let mut optimizer = sgd(&[&table], 1.0);
    let before = values(&table);
    let loss = |indices: &[u32]| {
        let indices = engine.indices(indices, [indices.len()]).unwrap();
        scope("wte", || table.embedding(&indices))
            .unwrap()
            .sum()
            .unwrap()
    };
    loss(&[1, 10]).backward().unwrap();
    let error = optimizer.step().unwrap_err();
    let Error::Kernel {
        op,
        source,
        module,
        location,
    } = &error
    else {
        panic!("{error}")
    };
    let expected = KernelError::IndexOutOfRange {
        index: 10,
        position: 1,
        below: 10,
    };
    assert_eq!(
        (*op, source, module.as_str()),
        ("embedding", &expected, "wte")
    );
    assert!(location.file().ends_with("semantics.rs"), "{location}");
    assert!(engine.check_poison().is_ok());
    assert_eq!(values(&table), before);
    loss(&[1, 9]).backward().unwrap();
    optimizer.step().unwrap();
    assert_ne!(values(&table), before);
    // Labels too, and also when the value is read rather than trained on.
    let labels = engine.indices(&[4], [1]).unwrap();
    let logits = engine.tensor(&[0.0; 4], [1, 4]).unwrap();
    let error = logits.cross_entropy(&labels).unwrap().item().unwrap_err();
    assert!(matches!(error, Error::Kernel { .. }), "{error}");
    assert_eq!(values(&logits), [0.0; 4]);
}

type Values = BTreeMap<String, Vec<f32>>;

#[derive(Module)]
struct Tied {
    first: Linear,
    rest: Vec<Linear>,
    shared: Parameter,
    none: Option<Linear>,
}

#[test]
fn modules_name_their_parameters_and_load_them() {
    let make = || {
        let engine = engine();
        let linear = || Linear::new(&engine, 2, 2, true).unwrap();
        let first = linear();
        let shared = first.weight.clone();
        Tied {
            first,
            rest: vec![linear(), linear()],
            shared,
            none: None,
        }
    };
    let (one, other) = (make(), make());
    let names: Vec<String> = one
        .named_parameters()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let expected = [
        "first.weight",
        "first.bias",
        "rest.0.weight",
        "rest.0.bias",
        "rest.1.weight",
        "rest.1.bias",
    ];
    assert_eq!(names, expected);
    assert_eq!(one.num_parameters(), 18);
    assert_eq!(join("rest", "0"), "rest.0");
    let state: BTreeMap<String, Vec<f32>> = (0..)
        .zip(one.state_dict())
        .map(|(i, (name, p))| (name, Random(i).values(p.shape().numel())))
        .collect();
    other.load_state_dict(&state).unwrap();
    for (name, parameter) in other.state_dict() {
        assert_eq!(values(&parameter), state[&name], "{name}");
    }
    assert_eq!(values(&other.shared), state["first.weight"]);
    // What another module has.
    one.load_state_dict(&other.state_dict()).unwrap();
    for (name, parameter) in one.state_dict() {
        assert_eq!(values(&parameter), state[&name], "{name}");
    }
    let broken = |change: &dyn Fn(&mut Values)| {
        let mut state = state.clone();
        change(&mut state);
        let before = values(&one.first.bias.clone().unwrap());
        let error = one.load_state_dict(&state).unwrap_err();
        assert_eq!(values(&one.first.bias.clone().unwrap()), before);
        assert!(matches!(error, Error::Saved(_)));
        error.to_string()
    };
    assert!(broken(&|s| drop(s.remove("rest.1.bias"))).contains("rest.1.bias is missing"));
    assert!(broken(&|s| drop(s.insert("x".into(), vec![]))).contains("x is unexpected"));
    assert!(
        broken(&|s| s.get_mut("rest.0.weight").unwrap().truncate(3))
            .contains("rest.0.weight: expected")
    );
    // As many values in another shape, of another module.
    let engine = engine();
    let [tall, wide] = [(2, 3), (3, 2)].map(|(i, o)| Linear::new(&engine, i, o, false).unwrap());
    let error = wide.load_state_dict(&tall.state_dict()).unwrap_err();
    let expected = "weight: expected the shape [2, 3], got [3, 2]";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn a_parameter_in_use_is_overwritten_after_it_was_read() {
    let engine = engine();
    let p = parameter(&engine, &[1.0, 2.0]);
    let loss = p.mul(&p).unwrap().sum().unwrap();
    p.copy_from_slice(&[5.0, 5.0]).unwrap();
    assert_eq!(loss.item().unwrap(), 5.0);
    assert_eq!(values(&p), [5.0, 5.0]);
    // As in PyTorch: what the gradient needs was overwritten.
    let error = loss.backward().and_then(|()| loss.item()).unwrap_err();
    assert!(error.to_string().contains("overwritten"), "{error}");
}

#[test]
fn a_run_goes_on_from_its_state() {
    let recipe = Recipe {
        accumulate: 2,
        ..PLAIN
    };
    let engine = Engine::builder().seed(11).build().unwrap();
    let model = (SMALL_GPT.make)(&engine).unwrap();
    train(&*model, &engine, recipe).unwrap();
    let (seed, offset) = engine.rng_state();
    let other = Engine::builder().seed(99).build().unwrap();
    let copy = (PINNED_GPT.make)(&other).unwrap();
    for (to, from) in copy.sets()[0].iter().zip(&model.sets()[0]) {
        to.copy_from_slice(&values(from)).unwrap();
    }
    other.set_rng_state(seed, offset);
    let next = |engine: &Engine, model: &dyn Model| train(model, engine, recipe).unwrap();
    assert_same_bits("resumed", &next(&other, &*copy), &next(&engine, &*model));
}

#[test]
fn evaluation_mode_draws_no_random_numbers() {
    let engine = engine();
    let dropout = highwater::nn::Dropout::new(0.5).unwrap();
    let x = engine.tensor(&[1.0; 64], [64]).unwrap();
    let ones = |x: &Tensor| values(x).iter().filter(|&&x| x == 1.0).count();
    assert_eq!(ones(&dropout.forward(&x).unwrap()), 0);
    let (one, other) = (dropout.forward(&x).unwrap(), dropout.forward(&x).unwrap());
    assert_ne!(values(&one), values(&other));
    dropout.eval();
    let before = engine.rng_state();
    assert_eq!(ones(&dropout.forward(&x).unwrap()), 64);
    assert_eq!(engine.rng_state(), before);
}

#[test]
fn groups_have_their_own_settings_and_the_rate_may_change() {
    let engine = engine();
    let (p, q) = (parameter(&engine, &[1.0]), parameter(&engine, &[1.0]));
    let group = |lr| AdamWOptions {
        lr,
        weight_decay: 0.0,
        ..AdamWOptions::default()
    };
    let groups = vec![
        (vec![p.clone()], group(0.1)),
        (vec![q.clone(), p.clone()], group(0.0)),
    ];
    let mut optimizer = AdamW::with_groups(groups).unwrap();
    let step = |optimizer: &mut AdamW| {
        p.sum()
            .unwrap()
            .add(&q.sum().unwrap())
            .unwrap()
            .backward()
            .unwrap();
        optimizer.step().unwrap();
        (values(&p)[0], values(&q)[0])
    };
    let (a, b) = step(&mut optimizer);
    assert!((a - 0.9).abs() < 1e-6 && b == 1.0, "{a} {b}");
    optimizer.groups_mut()[1].lr = 0.2;
    let (a, b) = step(&mut optimizer);
    assert!((a - 0.8).abs() < 1e-6 && (b - 0.8).abs() < 1e-6, "{a} {b}");
    optimizer.set_lr(0.0).unwrap();
    assert_eq!(step(&mut optimizer), (a, b));
    assert_eq!(optimizer.steps(), 3);
}
