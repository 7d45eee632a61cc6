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
        let count: usize = input.stored_shape().iter().product();
        let part = input.view.start..input.view.start + count;
        let data: Vec<f64> = match input.from {
            From::Leaf(leaf) => leaves[leaf][part].to_vec(),
            From::Step(step, output) => {
                let from = made[step][output].data[part].iter();
                match Range::of(input.fill) {
                    Range::Between(low, high) => from
                        .map(|x| low + (high - low) / (1.0 + (-x).exp()))
                        .collect(),
                    Range::Around(scale) => from.map(|x| scale * x.tanh()).collect(),
                    Range::Is(value) => from.map(|x| x * 0.0 + value).collect(),
                }
            }
        };
        let seen = positions(input).map(|at| data[at]).collect();
        Array::new(input.dtype, &input.shape[..], seen)
    };
    step.inputs.iter().map(input).collect()
}

/// Where each element of an input lies, of those that it is made of.
fn positions(input: &crate::program::Input) -> impl Iterator<Item = usize> {
    let (shape, stored) = (&input.shape, input.stored_shape());
    (0..shape.iter().product()).map(move |flat: usize| {
        let mut rest = flat;
        let mut at = vec![0; shape.len()];
        for dim in (0..shape.len()).rev() {
            at[dim] = rest % shape[dim];
            rest /= shape[dim];
        }
        if let Some(dim) = input.view.expanded {
            at[dim] = 0;
        }
        if let [.., a, b] = &mut at[..]
            && input.view.is_transposed
        {
            std::mem::swap(a, b);
        }
        at.iter()
            .zip(&stored)
            .fold(0, |flat, (at, extent)| flat * extent + at)
    })
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
