//! What guards stop, what they skip, and what the forward part writes behind them.

use crate::models::Random;
use highwater::nn::{Linear, Visitor, join};
use highwater::optim::{
    AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, Stepped, clip_grad_norm_, grad_norm,
    skip_unless_finite,
};
use highwater::{Buffer, Engine, Error, Module, Parameter, Result, Tensor};

fn engines() -> [Engine; 2] {
    [Engine::builder(), Engine::eager()].map(|builder| builder.seed(3).build().unwrap())
}

fn parameter(engine: &Engine, values: &[f32]) -> Parameter {
    Parameter::new(engine, [values.len()], |to| to.copy_from_slice(values)).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// Of a square root, whose gradient is infinite at 0.
fn root(p: &Parameter) -> Tensor {
    p.sqrt().unwrap().sum().unwrap()
}

#[test]
fn the_loss_and_the_norm_of_a_stopped_step_can_be_read() {
    for engine in engines() {
        let p = parameter(&engine, &[0.0, 4.0]);
        let mut sgd = Sgd::new(vec![p.clone()], SgdOptions::default()).unwrap();
        let loss = root(&p);
        let large = p.add_scalar(1.0).unwrap();
        loss.backward().unwrap();
        let norm = clip_grad_norm_(std::slice::from_ref(&p), 1.0).unwrap();
        let error = sgd.step().unwrap_err();
        assert!(matches!(error, Error::NonFinite { .. }), "{error}");
        assert!(error.to_string().contains("zero_grad"), "{error}");
        assert_eq!(loss.item().unwrap(), 2.0);
        assert_eq!(norm.item().unwrap(), f32::INFINITY);
        assert_eq!(values(&large), [1.0, 5.0]);
        assert_eq!(values(&p), [0.0, 4.0]);
        // And the engine goes on.
        p.sum().unwrap().backward().unwrap();
        sgd.step().unwrap();
        assert_eq!(values(&p), [-1e-3, 4.0 - 1e-3]);
    }
}

#[test]
fn a_skipped_step_keeps_the_losses_and_changes_nothing() {
    for engine in engines() {
        let (p, other) = (
            parameter(&engine, &[0.0, 4.0]),
            parameter(&engine, &[1.0, 1.0]),
        );
        let mut adamw = AdamW::new(vec![p.clone()], AdamWOptions::default()).unwrap();
        let moments = |adamw: &AdamW| -> Vec<Vec<f32>> {
            let moments = adamw.state_dict().into_iter();
            moments.map(|(_, moment)| values(&moment)).collect()
        };
        p.sum().unwrap().backward().unwrap();
        assert_eq!(adamw.step().unwrap(), Stepped::Updated);
        p.copy_from_slice(&[0.0, 4.0]).unwrap();
        let before = moments(&adamw);
        for _ in 0..2 {
            let loss = root(&p).add(&other.sum().unwrap()).unwrap();
            loss.backward().unwrap();
            let norm = grad_norm(std::slice::from_ref(&p)).unwrap();
            skip_unless_finite(&norm, "the gradient norm").unwrap();
            let what = "the gradient norm";
            assert_eq!(adamw.step().unwrap(), Stepped::Skipped { what });
            assert_eq!(engine.last_step().skipped, Some(what));
            assert_eq!(loss.item().unwrap(), 4.0);
            assert_eq!(norm.item().unwrap(), f32::INFINITY);
            assert!(p.grad().is_none());
        }
        // Nothing of others is lost: what is no update was computed.
        assert_eq!(values(&other.grad().unwrap()), [2.0, 2.0]);
        assert_eq!(adamw.step_counts(), [1]);
        assert_eq!(moments(&adamw), before);
        assert_eq!(values(&p), [0.0, 4.0]);
        p.sum().unwrap().backward().unwrap();
        assert_eq!(adamw.step().unwrap(), Stepped::Updated);
        assert_eq!(engine.last_step().skipped, None);
        assert_ne!(values(&p), [0.0, 4.0]);
    }
}

#[test]
fn a_guard_that_ran_before_the_step_skips_it_too() {
    let engine = Engine::builder().build().unwrap();
    let p = parameter(&engine, &[0.0, 4.0]);
    let mut sgd = Sgd::new(vec![p.clone()], SgdOptions::default()).unwrap();
    root(&p).backward().unwrap();
    let norm = grad_norm(std::slice::from_ref(&p)).unwrap();
    skip_unless_finite(&norm, "the norm").unwrap();
    // Evaluates what is pending, the guard among it.
    p.sum().unwrap().backward().unwrap();
    assert_eq!(norm.item().unwrap(), f32::INFINITY);
    assert!(matches!(sgd.step().unwrap(), Stepped::Skipped { .. }));
    assert_eq!(values(&p), [0.0, 4.0]);
    p.sum().unwrap().backward().unwrap();
    assert_eq!(sgd.step().unwrap(), Stepped::Updated);
}

/// Normalises by the mean of its batch, and follows it.
struct Center {
    linear: Linear,
    running: Buffer,
}

impl Module for Center {
    fn visit(&self, path: &str, visitor: &mut dyn Visitor) {
        self.linear.visit(&join(path, "linear"), visitor);
        self.running.visit(&join(path, "running"), visitor);
    }
}

impl Center {
    fn new(engine: &Engine, width: usize) -> Result<Self> {
        Ok(Self {
            linear: Linear::new(engine, width, width, true)?,
            running: Buffer::new(engine, [width], |to| to.fill(0.0))?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.linear.forward(x)?;
        let rows = y.dims()[0];
        let mean = y.sum_dims(&[0], false)?.mul_scalar(1.0 / rows as f64)?;
        let old = self.running.mul_scalar(0.9)?;
        self.running.assign(&old.add(&mean.mul_scalar(0.1)?)?)?;
        y.sub(&mean)?.tanh()
    }
}

/// What five steps of two layers leave: losses, parameters, buffers.
fn train(engine: &Engine, accumulate: u64) -> Result<Vec<Vec<u32>>> {
    let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let layers = vec![Center::new(engine, 32)?, Center::new(engine, 32)?];
    let mut adamw = AdamW::new(layers.parameters(), AdamWOptions::default())?;
    let mut seen = Vec::new();
    for step in 0..5 {
        for micro in 0..accumulate {
            let x = engine.tensor(&Random(step * 10 + micro).values(64 * 32), [64, 32])?;
            let y = layers[1].forward(&layers[0].forward(&x)?)?;
            let loss = y.mul(&y)?.mean()?;
            loss.backward()?;
            seen.push(loss);
        }
        adamw.step()?;
    }
    let state = layers.state_dict().into_values();
    let losses = seen.iter().map(Tensor::to_vec::<f32>);
    let state: Result<Vec<_>> = losses.chain(state.map(|p| p.to_vec::<f32>())).collect();
    Ok(state?.into_iter().map(bits).collect())
}

#[test]
fn what_the_forward_part_writes_has_the_same_bits_under_any_budget() {
    for accumulate in [1, 3] {
        let plenty = Engine::builder().seed(1).build().unwrap();
        let expected = train(&plenty, accumulate).unwrap();
        assert_ne!(expected[expected.len() - 1], vec![0; 32]);
        let eager = Engine::eager().seed(1).build().unwrap();
        assert_eq!(train(&eager, accumulate).unwrap(), expected);
        let engine = |bytes| Engine::builder().seed(1).arena(bytes).build().unwrap();
        let mut budget = 8 << 10;
        let mut ran = 0;
        while budget < 512 << 10 {
            match train(&engine(budget), accumulate) {
                Ok(seen) => {
                    assert_eq!(seen, expected, "{budget}");
                    ran += 1;
                    budget = budget * 5 / 4;
                }
                Err(Error::OverBudget { floor_bytes, .. }) => {
                    assert!(floor_bytes > budget);
                    budget = floor_bytes;
                }
                Err(Error::State { .. }) => budget = budget * 5 / 4,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(ran >= 5, "{ran}");
    }
}

#[test]
fn a_stopped_step_leaves_running_statistics_as_they_were() {
    for engine in engines() {
        let layer = Center::new(&engine, 4).unwrap();
        let mut sgd = Sgd::new(layer.parameters(), SgdOptions::default()).unwrap();
        let input = |scale: f32| engine.tensor(&[scale; 8], [2, 4]).unwrap();
        layer.forward(&input(1.0)).unwrap();
        let before = values(&layer.running);
        assert!(before.iter().any(|&x| x != 0.0));
        let loss = layer.forward(&input(f32::NAN)).unwrap().sum().unwrap();
        // Without a graph that waits the loss is looked at in backward().
        let stopped = loss.backward().and_then(|()| sgd.step());
        assert!(matches!(stopped, Err(Error::NonFinite { .. })));
        assert!(loss.item().unwrap().is_nan());
        assert_eq!(values(&layer.running), before);
    }
}

#[test]
fn a_buffer_reads_as_it_was_when_it_was_read() {
    for engine in engines() {
        let buffer = Buffer::new(&engine, [2], |to| to.copy_from_slice(&[1.0, 2.0])).unwrap();
        let (old, doubled) = (buffer.detach().unwrap(), buffer.mul_scalar(2.0).unwrap());
        let x = engine.tensor(&[5.0, 6.0], [2]).unwrap();
        buffer.assign(&x).unwrap();
        let new = buffer.mul_scalar(10.0).unwrap();
        buffer.assign(&buffer.add(&buffer).unwrap()).unwrap();
        assert_eq!(values(&new), [50.0, 60.0]);
        assert_eq!(values(&doubled), [2.0, 4.0]);
        assert_eq!(values(&old), [1.0, 2.0]);
        assert_eq!(values(&buffer), [10.0, 12.0]);
        assert_eq!(values(&x), [5.0, 6.0]);
        for _ in 0..200 {
            buffer.assign(&buffer.add_scalar(1.0).unwrap()).unwrap();
        }
        assert_eq!(values(&buffer), [210.0, 212.0]);
        let error = buffer.assign(&engine.tensor(&[1.0; 3], [3]).unwrap());
        assert!(matches!(error, Err(Error::Op { .. })), "{error:?}");
    }
}

#[test]
fn buffers_are_state_and_no_parameters() {
    let engine = Engine::builder().build().unwrap();
    let layer = Center::new(&engine, 4).unwrap();
    layer.name_parameters();
    let names: Vec<String> = layer.state_dict().into_keys().collect();
    assert_eq!(names, ["linear.bias", "linear.weight", "running"]);
    assert_eq!(layer.parameters().len(), 2);
    assert_eq!(layer.named_buffers()[0].0, "running");
    assert_eq!(layer.running.name(), "running");
    assert!(!layer.running.requires_grad().unwrap());
}
