//! What a program computes, by the plain references.

use crate::program::{From, Program, Range, Step};
use highwater_ops::Array;

/// The outputs of each step.
pub(crate) fn interpret(program: &Program, leaves: &[Vec<f64>]) -> Vec<Vec<Array>> {
    let mut made: Vec<Vec<Array>> = Vec::new();
    for step in &program.steps {
        let outputs = (step.reference)(&*step.op, &inputs(step, leaves, &made));
        made.push(outputs);
    }
    made
}

fn inputs(step: &Step, leaves: &[Vec<f64>], made: &[Vec<Array>]) -> Vec<Array> {
    let input = |input: &crate::program::Input| {
        let count = input.shape.iter().product();
        let data = match input.from {
            From::Leaf(leaf) => leaves[leaf].clone(),
            From::Step(step, output) => {
                let from = made[step][output].data[..count].iter();
                match Range::of(input.fill) {
                    Range::Between(low, high) => from
                        .map(|x| low + (high - low) / (1.0 + (-x).exp()))
                        .collect(),
                    Range::Around(scale) => from.map(|x| scale * x.tanh()).collect(),
                    Range::Is(value) => from.map(|x| x * 0.0 + value).collect(),
                }
            }
        };
        Array::new(input.dtype, &input.shape[..], data)
    };
    step.inputs.iter().map(input).collect()
}

/// The sum of all floats that a program makes, each times a number of its own.
pub(crate) fn loss(program: &Program, leaves: &[Vec<f64>]) -> f64 {
    let mut sum = 0.0;
    for (step, outputs) in program.steps.iter().zip(interpret(program, leaves)) {
        for (output, (dtype, _)) in outputs.iter().zip(&step.outputs) {
            if dtype.is_float() {
                let weighted = output.data.iter().enumerate();
                sum += weighted.map(|(i, x)| weight(i) * x.tanh()).sum::<f64>();
            }
        }
    }
    sum
}

/// What the `i`-th element of an output counts in the loss.
pub(crate) fn weight(i: usize) -> f64 {
    [0.5, -1.0, 0.25, 1.5, -0.75][i % 5]
}
