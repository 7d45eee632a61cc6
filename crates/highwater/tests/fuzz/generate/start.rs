//! What a program begins with: shapes, parameters, optimizers.

use super::{Choices, Size};
use crate::program::{Dtype, Fill, OptimizerSpec, ParameterSpec, Program, Rule};

/// Parameters and optimizers.
pub(super) fn start(choices: &mut Choices, size: Size, extents: &[usize]) -> Program {
    let mut parameters = Vec::new();
    for _ in 0..=choices.below(4) {
        let shape = shape(choices, size, extents);
        let frozen = choices.once_in(10);
        let dtype = match choices.below(3) {
            0 if frozen => Dtype::Bf16,
            1 if frozen => Dtype::F16,
            _ => Dtype::F32,
        };
        parameters.push(ParameterSpec {
            shape,
            fill: fill(choices),
            dtype,
            frozen,
        });
    }
    let mut optimizers = Vec::new();
    for _ in 0..=choices.below(2) {
        let all = 0..parameters.len();
        let of_f32 = |p: &usize| parameters[*p].dtype == Dtype::F32;
        let mut own: Vec<usize> = all.filter(of_f32).collect();
        if own.len() > 1 && choices.once_in(2) {
            own.remove(choices.below(own.len()));
        }
        if !own.is_empty() {
            optimizers.push(OptimizerSpec {
                parameters: own,
                rule: rule(choices),
            });
        }
    }
    Program {
        parameters,
        optimizers,
        statements: Vec::new(),
    }
}

pub(super) fn shape(choices: &mut Choices, size: Size, extents: &[usize]) -> Vec<usize> {
    let rank = match size {
        Size::Small | Size::Medium => *choices.of(&[0, 1, 1, 2, 2, 2, 2, 3, 4]),
        Size::Border | Size::Large => *choices.of(&[0, 1, 2, 2, 2, 2]),
    };
    let mut shape: Vec<usize> = (0..rank).map(|_| *choices.of(extents)).collect();
    while shape.iter().product::<usize>() > size.elements_most() {
        shape.pop();
    }
    shape
}

pub(super) fn fill(choices: &mut Choices) -> Fill {
    let seed = choices.below(1 << 20) as u64;
    match choices.below(8) {
        0 => Fill {
            seed,
            scale: 0.0,
            shift: *choices.of(&[0.0, 0.5, 1.0, -2.0]),
        },
        1 => Fill {
            seed,
            scale: 0.25,
            shift: 1.5,
        },
        2 => Fill {
            seed,
            scale: 0.125,
            shift: 0.0,
        },
        _ => Fill {
            seed,
            scale: *choices.of(&[0.25, 0.5, 1.0]),
            shift: 0.0,
        },
    }
}

fn rule(choices: &mut Choices) -> Rule {
    let lr = *choices.of(&[0.5, 0.1, 0.01]);
    if choices.once_in(3) {
        let eps = *choices.of(&[1e-8, 1e-3, 0.1]);
        let weight_decay = *choices.of(&[0.0, 0.01, 0.1]);
        return Rule::AdamW {
            lr,
            betas: (0.9, 0.999),
            eps,
            weight_decay,
        };
    }
    let momentum = *choices.of(&[0.0, 0.0, 0.5, 0.9]);
    let nesterov = momentum > 0.0 && choices.once_in(3);
    let dampening = if nesterov {
        0.0
    } else {
        *choices.of(&[0.0, 0.25])
    };
    let weight_decay = *choices.of(&[0.0, 0.0, 0.1]);
    Rule::Sgd {
        lr,
        momentum,
        dampening,
        weight_decay,
        nesterov,
    }
}
