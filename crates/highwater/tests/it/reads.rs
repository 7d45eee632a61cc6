//! Values read in the middle of a step, and what outlives one.

use crate::models::{DENSE, Random, SKIPS, SMALL_GPT, TWO_LOSSES, TWO_OPTIMIZERS};
use crate::share::some;
use crate::train::{PAGE, PLAIN, Recipe, assert_same_bits, assert_within, floor, run};
use highwater::nn::Linear;
use highwater::optim::{Optimizer, Sgd, SgdOptions};
use highwater::{Engine, Error, Module, Parameter, Tensor, eval, no_grad};

#[test]
fn reading_the_loss_before_backward_changes_no_bit_at_any_budget() {
    let accumulating = Recipe {
        clip: true,
        accumulate: 3,
        ..PLAIN
    };
    for (sample, late) in some([
        (SMALL_GPT, PLAIN),
        (SMALL_GPT, accumulating),
        (TWO_OPTIMIZERS, accumulating),
        (SKIPS, accumulating),
        (TWO_LOSSES, PLAIN),
        (DENSE, PLAIN),
    ]) {
        let early = Recipe {
            read_early: true,
            ..late
        };
        let mut expected = run(Engine::builder(), &sample.make, late).unwrap();
        expected.bits.sort();
        let plenty = run(Engine::builder(), &sample.make, early).unwrap();
        let least = floor(&sample.make, early, &plenty);
        let most = plenty.peak_bytes();
        assert!(least < most, "{}: {least} and {most}", sample.name);
        for i in 0..3 {
            let budget = least + (most - least) * i / 2;
            let what = format!("{}, {early:?}, {budget} of {least} to {most}", sample.name);
            let mut trace = run(Engine::builder().arena(budget), &sample.make, early)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            trace.bits.sort();
            assert_same_bits(&what, &trace, &expected);
            assert_within(&what, budget, &trace);
        }
    }
}

#[test]
fn reading_the_loss_before_backward_runs_nothing_twice_with_plenty_of_memory() {
    for sample in [SMALL_GPT, TWO_LOSSES, DENSE] {
        for accumulate in [1, 3] {
            let late = Recipe {
                accumulate,
                ..PLAIN
            };
            let nodes = |recipe| {
                let plenty = Engine::builder().arena(1 << 40);
                let trace = run(plenty, &sample.make, recipe).unwrap();
                let recomputed: u32 = trace.reports.iter().map(|r| r.recomputed_nodes).sum();
                assert_eq!(recomputed, 0, "{} {recipe:?}", sample.name);
                trace.reports.iter().map(|report| report.nodes).sum::<u32>()
            };
            assert_eq!(
                nodes(Recipe {
                    read_early: true,
                    ..late
                }),
                nodes(late),
                "{}",
                sample.name
            );
        }
    }
}

/// A chain whose activations are too large to outlive a step unasked.
struct Chain {
    engine: Engine,
    layers: Vec<Linear>,
}

const ROWS: usize = 512;
const COLUMNS: usize = 64;

impl Chain {
    fn new(engine: &Engine) -> Self {
        let layer = |_| Linear::new(engine, COLUMNS, COLUMNS, true).unwrap();
        Self {
            engine: engine.clone(),
            layers: (0..4).map(layer).collect(),
        }
    }

    fn input(&self, seed: u64) -> Tensor {
        let values = Random(seed).values(ROWS * COLUMNS);
        self.engine.tensor(&values, [ROWS, COLUMNS]).unwrap()
    }

    /// Every activation, and the loss.
    fn forward(&self, x: &Tensor) -> (Vec<Tensor>, Tensor) {
        let mut all = vec![x.clone()];
        for layer in &self.layers {
            let h = layer.forward(&all[all.len() - 1]).unwrap();
            all.push(h.dropout(0.1).unwrap().tanh().unwrap());
        }
        let last = &all[all.len() - 1];
        let loss = last.mul(last).unwrap().mean().unwrap();
        (all, loss)
    }

    fn sgd(&self) -> Sgd {
        let options = SgdOptions {
            lr: 0.1,
            momentum: 0.9,
            ..SgdOptions::default()
        };
        Sgd::new(self.layers.parameters(), options).unwrap()
    }

    fn weights(&self) -> Vec<Vec<f32>> {
        self.layers
            .parameters()
            .iter()
            .map(|p| p.to_vec().unwrap())
            .collect()
    }
}

fn engine() -> Engine {
    Engine::builder().seed(5).build().unwrap()
}

#[test]
fn values_read_in_the_middle_are_those_of_a_run_that_reads_nothing() {
    let train = |read: bool, budget: u64| {
        let engine = Engine::builder().seed(5).arena(budget).build()?;
        let chain = Chain::new(&engine);
        let mut sgd = chain.sgd();
        for step in 0..3 {
            let (mut all, loss) = chain.forward(&chain.input(step));
            if read {
                let third: Vec<f32> = all[3].to_vec()?;
                assert_eq!(all[3].to_vec::<f32>()?, third);
                drop(all.split_off(2));
                eval([&all[1], &loss])?;
                assert!(loss.item()? > 0.0);
            }
            drop(all);
            loss.backward()?;
            sgd.step()?;
        }
        Ok(chain.weights())
    };
    let plenty = 1 << 30;
    let expected = train(false, plenty).unwrap();
    assert_eq!(train(true, plenty).unwrap(), expected);
    // From what the first refusal asks for to what goes through.
    let mut budget = 800 << 10;
    loop {
        match train(true, budget) {
            Ok(weights) => break assert_eq!(weights, expected, "{budget}"),
            Err(Error::OverBudget { floor_bytes, .. }) if floor_bytes > budget => {
                budget = floor_bytes;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_value_read_twice_is_computed_once() {
    let engine = engine();
    let chain = Chain::new(&engine);
    let (all, loss) = chain.forward(&chain.input(1));
    let first: Vec<f32> = all[2].to_vec().unwrap();
    let report = engine.last_step();
    assert!(report.nodes >= 6);
    assert_eq!(all[2].to_vec::<f32>().unwrap(), first);
    assert_eq!(engine.last_step(), report);
    // The rest of the chain starts from there.
    loss.item().unwrap();
    assert_eq!(
        (
            engine.last_step().nodes,
            engine.last_step().recomputed_nodes
        ),
        (8, 0)
    );
}

#[test]
fn views_of_a_read_value_and_new_results_from_it_are_right() {
    let engine = engine();
    let x = engine
        .tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])
        .unwrap();
    let y = x.mul_scalar(2.0).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    let turned = y.transpose(0, 1).unwrap();
    assert_eq!(
        turned.to_vec::<f32>().unwrap(),
        [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]
    );
    let part = turned.narrow(0, 1, 2).unwrap().add_scalar(1.0).unwrap();
    assert_eq!(part.to_vec::<f32>().unwrap(), [5.0, 11.0, 7.0, 13.0]);
}

#[test]
fn evaluation_loops_hold_nothing() {
    for push in [false, true] {
        let engine = engine();
        let chain = Chain::new(&engine);
        let mut losses = Vec::new();
        let mut state = Vec::new();
        for i in 0..40 {
            no_grad(|| {
                let (_, loss) = chain.forward(&chain.input(i));
                loss.item().unwrap();
                if push {
                    losses.push(loss);
                }
            });
            state.push(engine.state_bytes());
        }
        // An input takes 128 KiB, a loss one slot.
        assert!(state[39] <= state[1] + PAGE, "{push}: {state:?}");
    }
}

#[test]
fn a_forward_that_is_never_used_holds_nothing() {
    let engine = engine();
    let chain = Chain::new(&engine);
    let mut state = Vec::new();
    for i in 0..20 {
        drop(chain.forward(&chain.input(i)));
        let (all, loss) = chain.forward(&chain.input(i));
        drop(all);
        assert!(loss.item().unwrap() > 0.0);
        state.push(engine.state_bytes());
    }
    assert!(state.iter().max() == state[..4].iter().max(), "{state:?}");
}

#[test]
fn losses_that_are_collected_hold_no_graph() {
    let engine = engine();
    let chain = Chain::new(&engine);
    let mut sgd = chain.sgd();
    let (mut losses, mut state) = (Vec::new(), Vec::new());
    for i in 0..20 {
        let (_, loss) = chain.forward(&chain.input(i));
        loss.backward().unwrap();
        sgd.step().unwrap();
        losses.push(loss);
        state.push(engine.state_bytes());
    }
    assert!(state[19] <= state[1] + PAGE, "{state:?}");
    let values: Vec<f32> = losses.iter().map(|loss| loss.item().unwrap()).collect();
    assert!(values[19] < values[0], "{values:?}");
}

#[test]
fn what_a_step_does_not_keep_says_where_it_was_made_and_where_it_went() {
    let engine = engine();
    let chain = Chain::new(&engine);
    let mut sgd = chain.sgd();
    let x = chain.input(0);
    let large = chain.layers[0].forward(&x).unwrap();
    let twice = large.mul_scalar(2.0).unwrap().keep();
    let made = format!("{}:{}:", file!(), line!() - 1);
    let triple = large.mul_scalar(3.0).unwrap();
    let made_triple = format!("{}:{}:", file!(), line!() - 1);
    let small = triple.sum_dims(&[0], false).unwrap();
    let loss = small.mul(&small).unwrap().mean().unwrap();
    loss.backward().unwrap();
    sgd.step().unwrap();
    let stepped = format!("{}:{}:", file!(), line!() - 1);

    assert_eq!(
        twice.to_vec::<f32>().unwrap().len(),
        ROWS * COLUMNS,
        "{made}"
    );
    let sums: Vec<f32> = small.to_vec().unwrap();
    let mean = sums.iter().map(|x| f64::from(x * x)).sum::<f64>() / COLUMNS as f64;
    assert!((f64::from(loss.item().unwrap()) / mean - 1.0).abs() < 1e-5);
    assert_eq!(x.to_vec::<f32>().unwrap(), Random(0).values(ROWS * COLUMNS));

    let read = triple.to_vec::<f32>().unwrap_err();
    let used = triple.relu().unwrap_err();
    for error in [read, used] {
        let Error::Expired {
            spec,
            made_at,
            evaluated_at,
        } = &error
        else {
            panic!("{error}")
        };
        assert!(spec.contains("512") && spec.contains("64"), "{spec}");
        assert!(
            made_at.to_string().starts_with(&made_triple),
            "{made_at}, not {made_triple}"
        );
        assert!(
            evaluated_at.to_string().starts_with(&stepped),
            "{evaluated_at}, not {stepped}"
        );
        let text = error.to_string();
        assert!(text.contains("keep()") && text.contains(&stepped), "{text}");
    }
}

#[test]
fn evaluated_values_outlive_the_step() {
    let engine = engine();
    let chain = Chain::new(&engine);
    let mut sgd = chain.sgd();
    let (all, loss) = chain.forward(&chain.input(0));
    eval([&all[2], &all[4]]).unwrap();
    let before: Vec<f32> = all[4].to_vec().unwrap();
    loss.backward().unwrap();
    sgd.step().unwrap();
    assert_eq!(all[4].to_vec::<f32>().unwrap(), before);
    assert!(all[2].to_vec::<f32>().is_ok());
    assert!(matches!(all[3].to_vec::<f32>(), Err(Error::Expired { .. })));
}

#[test]
fn a_parameter_reads_as_it_is_now() {
    let engine = engine();
    let p = Parameter::new(&engine, [2], |values| values.copy_from_slice(&[1.0, -2.0])).unwrap();
    let mut sgd = Sgd::new(
        vec![p.clone()],
        SgdOptions {
            lr: 0.5,
            ..SgdOptions::default()
        },
    )
    .unwrap();
    p.mul(&p).unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(p.to_vec::<f32>().unwrap(), [1.0, -2.0]);
    sgd.step().unwrap();
    assert_eq!(p.to_vec::<f32>().unwrap(), [0.0, 0.0]);
    p.copy_from_slice(&[3.0, 4.0]).unwrap();
    assert_eq!(p.to_vec::<f32>().unwrap(), [3.0, 4.0]);
}
