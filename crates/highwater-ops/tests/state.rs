//! Values that are not finite stop guards and optimizers.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use highwater_graph::Location;
use highwater_graph::{Category, DType, Graph, Op, Operand, Phase, Site, Spec};
use highwater_ops::evaluate::{EvaluateError, Values};
use highwater_ops::{AdamW, Array, Finite, Formats, OPS, Pool, Sgd};
use std::sync::Arc;

const LEN: usize = 40_000;

fn site() -> Site {
    Site {
        module: "".into(),
        location: Location::caller(),
        phase: Phase::Update,
        checkpoint: None,
        grad_enabled: false,
    }
}

/// Runs an operation on cells and a last input that holds `bad` at one place.
fn run(op: impl Op, bad: f64) -> Result<(), EvaluateError> {
    let mut graph = Graph::default();
    let mut values = Values::default();
    let spec = Spec::contiguous(DType::F32, [LEN]);
    let mut inputs: Vec<Operand> = (0..op.writes().len())
        .map(|_| {
            let id = graph.add_cell("cell", spec.clone(), Category::Parameter, false);
            graph.read_cell(id).unwrap()
        })
        .collect();
    inputs.push(graph.add_input(spec, Category::Gradient));
    for (i, input) in inputs.iter().enumerate() {
        let is_last = i + 1 == inputs.len();
        let value = |at| if is_last && at == LEN - 7 { bad } else { 0.5 };
        values.set(input, &Array::from_fn([LEN], value));
    }
    graph.add(Arc::new(op), &inputs, &site()).unwrap();
    values.evaluate_kernels(&graph, OPS, &Pool::new(2).unwrap())
}

#[test]
fn values_that_are_not_finite_are_refused() {
    let adamw = AdamW {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        decoupled: true,
        amsgrad: false,
        maximize: false,
        step: 3,
        formats: Formats::PLAIN,
    };
    let sgd = Sgd {
        lr: 0.1,
        momentum: 0.9,
        dampening: 0.0,
        weight_decay: 0.0,
        nesterov: false,
        maximize: false,
        first: true,
        formats: Formats::PLAIN,
    };
    let plain = Sgd {
        momentum: 0.0,
        ..sgd
    };
    assert_eq!(run(adamw, 1e30), Ok(()));
    assert_eq!(run(sgd, -1e30), Ok(()));
    assert_eq!(run(Finite::or_stop("loss"), f64::from(f32::MAX)), Ok(()));
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let gradient = "the kernel answers: gradient is not finite";
        assert_eq!(run(adamw, bad).unwrap_err().reason, gradient);
        assert_eq!(run(sgd, bad).unwrap_err().reason, gradient);
        assert_eq!(run(plain, bad).unwrap_err().reason, gradient);
        let loss = "the kernel answers: loss is not finite";
        assert_eq!(run(Finite::or_stop("loss"), bad).unwrap_err().reason, loss);
    }
}
