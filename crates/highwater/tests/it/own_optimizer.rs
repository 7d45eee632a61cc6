//! Optimizers written outside of the library: what a rule may do, what it is refused, and what is left then.
//! LAMB's numbers are compared in `tests/optim`.

use highwater::op::{Formats, Op, Operand};
use highwater::optim::{Direction, Groups, NAdam, NAdamOptions, Optimizer, Rule};
use highwater::prelude::*;
use highwater::{Builder, DType, Error, Shape, with_parameter_dtype};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is done with a gradient.
type Way = fn(&Direction<'_>) -> Result<Tensor>;

/// A rule whose direction is a function of the test's.
#[derive(Debug, Clone)]
struct By {
    lr: f64,
    way: Way,
}

impl Rule for By {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![("lr", self.lr, f64::INFINITY)]
    }

    fn statistics(&self, shape: &Shape) -> Vec<(&'static str, Shape)> {
        vec![("average", shape.clone()), ("steps", Shape::from([]))]
    }

    fn direction(&self, of: &Direction<'_>) -> Result<Tensor> {
        (self.way)(of)
    }

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}

/// One without state, which writes only what it must.
#[derive(Debug)]
struct SignSgd(f64);

impl Rule for SignSgd {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![("lr", self.0, f64::INFINITY)]
    }

    fn direction(&self, of: &Direction<'_>) -> Result<Tensor> {
        of.gradient().sign()
    }

    fn lr(&self) -> f64 {
        self.0
    }

    fn set_lr(&mut self, lr: f64) {
        self.0 = lr;
    }
}

/// One whose update is an operation: here that of the library by another name.
#[derive(Debug)]
struct Renamed(f64);

impl Rule for Renamed {
    fn bounds(&self) -> Vec<(&'static str, f64, f64)> {
        vec![("lr", self.0, f64::INFINITY)]
    }

    fn update(&self, steps: u64, formats: Formats) -> Arc<dyn Op> {
        let options = SgdOptions {
            lr: self.0,
            ..Default::default()
        };
        options.update(steps, formats)
    }

    fn goes_by_gradient(&self) -> bool {
        true
    }

    fn lr(&self) -> f64 {
        self.0
    }

    fn set_lr(&mut self, lr: f64) {
        self.0 = lr;
    }
}

fn engine() -> Engine {
    Engine::builder().arena(8 << 20).seed(4).build().unwrap()
}

fn parameter(engine: &Engine, values: &[f32]) -> Parameter {
    Parameter::new(engine, [values.len()], |w| w.copy_from_slice(values)).unwrap()
}

fn by(way: Way) -> By {
    By { lr: 0.5, way }
}

#[test]
fn least_of_all_is_a_direction_and_a_rate() {
    let engine = engine();
    let w = parameter(&engine, &[1.0, -2.0, 3.0]);
    let mut optimizer = Groups::new(vec![w.clone()], SignSgd(0.25)).unwrap();
    for _ in 0..2 {
        w.square().unwrap().sum().unwrap().backward().unwrap();
        optimizer.step().unwrap();
    }
    assert_eq!(w.to_vec::<f32>().unwrap(), [0.5, -1.5, 2.5]);
    assert!(optimizer.state_dict().is_empty());
    let mut optimizer = Groups::new(vec![w.clone()], Renamed(0.5)).unwrap();
    w.square().unwrap().sum().unwrap().backward().unwrap();
    optimizer.step().unwrap();
    assert_eq!(w.to_vec::<f32>().unwrap(), [0.0; 3]);
    // What operations outside name in the signatures of their own functions.
    assert!(std::mem::size_of::<Operand>() > 0);
}

#[test]
fn statistics_are_read_moved_and_replaced() {
    let engine = engine();
    let w = parameter(&engine, &[4.0]);
    let way: Way = |of| {
        let before = of.statistic("steps")?.clone();
        assert!(!before.requires_grad()?);
        let steps = of.assign("steps", &of.statistic("steps")?.add_scalar(1.0)?)?;
        // What was read after the first write stays what it was.
        let again = of.assign("steps", &steps.mul_scalar(10.0)?)?;
        let back = of.assign("steps", &again.div_scalar(10.0)?)?;
        assert!(of.statistic("nothing").is_err());
        let average = of.lerp("average", of.gradient(), 0.5)?;
        assert_eq!(of.parameter().dims(), [1]);
        average.mul(&steps.add(&again)?.sub(&back)?)
    };
    let mut optimizer = Groups::new(vec![w.clone()], by(way)).unwrap();
    for _ in 0..2 {
        w.sum().unwrap().backward().unwrap();
        optimizer.step().unwrap();
    }
    // 0.5 · 0.5 · 10, then 0.5 · 0.75 · 20.
    assert_eq!(w.to_vec::<f32>().unwrap(), [4.0 - 2.5 - 7.5]);
    let state: Vec<f32> = optimizer
        .state_dict()
        .iter()
        .map(|(_, state)| state.to_vec::<f32>().unwrap()[0])
        .collect();
    assert_eq!(state, [0.75, 2.0]);
}

/// A step that a rule stops changes nothing, and the next one is like any other.
#[test]
fn a_direction_that_fails_leaves_everything_as_it_was() {
    let refused: [(Way, &str); 5] = [
        (|of| of.gradient().reshape([7]), "reshape"),
        (
            |of| of.gradient().sum(),
            "a direction of shape [] for `second` of shape [2]",
        ),
        (
            |of| of.gradient().to_vec::<f32>().map(|_| of.gradient().clone()),
            "the direction of an update had something computed",
        ),
        (
            |of| of.lerp("averages", of.gradient(), 0.5),
            "no statistic is called `averages`",
        ),
        (
            |_| {
                let other = Engine::builder().arena(1 << 20).build()?;
                other.tensor(&[1.0, 1.0], [2])
            },
            "is of another engine",
        ),
    ];
    for (way, what) in refused {
        let engine = engine();
        let first = parameter(&engine, &[1.0, 2.0]);
        let second = parameter(&engine, &[3.0, 4.0]);
        second.set_name("second");
        let groups = vec![
            (
                vec![first.clone()],
                by(|of| of.lerp("average", of.gradient(), 0.5)),
            ),
            (vec![second.clone()], by(way)),
        ];
        let mut optimizer = Groups::with_groups(groups).unwrap();
        let backward = || {
            let loss = first.mul(&second).unwrap().sum().unwrap();
            loss.backward().unwrap();
        };
        backward();
        let error = optimizer.step().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert_eq!(first.to_vec::<f32>().unwrap(), [1.0, 2.0]);
        assert_eq!(optimizer.step_counts(), [0, 0]);
        optimizer.groups_mut()[1].way = |of| Ok(of.gradient().clone());
        backward();
        optimizer.step().unwrap();
        assert_eq!(first.to_vec::<f32>().unwrap(), [1.0 - 0.75, 2.0 - 1.0]);
        assert_eq!(second.to_vec::<f32>().unwrap(), [2.5, 3.0]);
    }
}

#[test]
fn a_panic_in_a_direction_gives_the_step_up() {
    let engine = engine();
    let w = parameter(&engine, &[1.0]);
    let mut optimizer = Groups::new(vec![w.clone()], by(|_| panic!("the user's"))).unwrap();
    w.square().unwrap().sum().unwrap().backward().unwrap();
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| optimizer.step()));
    assert!(stopped.is_err());
    optimizer.groups_mut()[0].way = |of| Ok(of.gradient().clone());
    w.square().unwrap().sum().unwrap().backward().unwrap();
    optimizer.step().unwrap();
    assert_eq!(w.to_vec::<f32>().unwrap(), [0.0]);
}

/// Gradients and statistics of parameters in half precision are in `F32`, and updates go through a master.
#[test]
fn parameters_may_be_in_any_precision() {
    for dtype in [DType::F64, DType::BF16, DType::F16] {
        let engine = engine();
        let layer = with_parameter_dtype(dtype, || Linear::new(&engine, 3, 2, false)).unwrap();
        let way: Way = |of| {
            let wide = if of.parameter().dtype() == DType::F64 {
                DType::F64
            } else {
                DType::F32
            };
            assert_eq!(of.gradient().dtype(), wide);
            of.lerp("average", of.gradient(), 0.5)?
                .mul(&of.number(2.0)?)
        };
        let mut optimizer = Groups::new(layer.parameters(), by(way)).unwrap();
        let before = layer.weight.to_dtype(DType::F32).unwrap();
        let before = before.to_vec::<f32>().unwrap();
        layer.weight.sum().unwrap().backward().unwrap();
        optimizer.step().unwrap();
        let after = layer.weight.to_dtype(DType::F32).unwrap();
        for (before, after) in before.iter().zip(after.to_vec::<f32>().unwrap()) {
            assert!((before - after - 0.5).abs() < 5e-3, "{dtype}");
        }
    }
}

/// The bits of weights after some steps of a model, and what the last step took.
fn train(builder: Builder) -> Result<(Vec<u32>, u64)> {
    let engine = builder.threads(2).seed(4).build()?;
    let widths = [64, 128, 128, 64];
    let layers: Result<Vec<Linear>> = widths
        .windows(2)
        .map(|pair| Linear::new(&engine, pair[0], pair[1], false))
        .collect();
    let layers = layers?;
    let way: Way = |of| {
        let average = of.lerp("average", of.gradient(), 0.1)?;
        let root = of.gradient().square()?.mean()?.sqrt()?;
        average
            .div(&root.add_scalar(1e-3)?)?
            .div(&of.number(of.step() as f64)?)
    };
    let parameters = layers.iter().flat_map(Module::parameters).collect();
    let mut optimizer = Groups::new(parameters, By { lr: 0.05, way })?;
    let x = Tensor::randn(&engine, [128, 64])?;
    for _ in 0..3 {
        let mut y = x.clone();
        for layer in &layers {
            y = layer.forward(&y)?.tanh()?;
        }
        y.square()?.mean()?.backward()?;
        optimizer.step()?;
    }
    let mut bits = Vec::new();
    for layer in &layers {
        bits.extend(layer.weight.to_vec::<f32>()?.iter().map(|w| w.to_bits()));
    }
    Ok((bits, engine.last_step().planned_arena_bytes))
}

#[test]
fn a_budget_changes_no_bit() {
    let (want, used) = train(Engine::builder().arena(64 << 20)).unwrap();
    let mut fitting = 0;
    for kib in (200..2400).step_by(100) {
        match train(Engine::builder().arena(kib << 10)) {
            Ok((got, planned)) => {
                assert!(got == want, "{kib} KiB");
                fitting += usize::from(planned < used);
            }
            Err(Error::OverBudget { .. } | Error::State { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(fitting > 0);
}

/// Numbers that change from step to step are data: every step after the first has the same plan.
#[test]
fn numbers_that_change_keep_the_plan() {
    static PLANS: AtomicUsize = AtomicUsize::new(0);
    let engine = Engine::builder().arena(8 << 20).on_plan(|_, _| {
        PLANS.fetch_add(1, Ordering::Relaxed);
    });
    let engine = engine.build().unwrap();
    let layer = Linear::new(&engine, 16, 16, true).unwrap();
    let way: Way = |of| of.gradient().div(&of.number(of.step() as f64)?);
    let mut optimizers: [Box<dyn Optimizer>; 2] = [
        Box::new(NAdam::new(layer.parameters(), NAdamOptions::default()).unwrap()),
        Box::new(Groups::new(layer.parameters(), by(way)).unwrap()),
    ];
    let x = Tensor::randn(&engine, [4, 16]).unwrap();
    for optimizer in &mut optimizers {
        let mut plans = Vec::new();
        for _ in 0..6 {
            let loss = layer.forward(&x).unwrap().square().unwrap().mean();
            loss.unwrap().backward().unwrap();
            optimizer.step().unwrap();
            plans.push(PLANS.load(Ordering::Relaxed));
        }
        assert!(
            plans[1..].iter().all(|&count| count == plans[1]),
            "{plans:?}"
        );
    }
}
