//! Gradients, optimizers, and looks at what there is.

use super::start::fill;
use super::{Generator, Known};
use crate::program::{Dtype, Op, Operand, Statement};

impl Generator {
    /// A loss, if there is none, and its gradients; at times of the same loss twice.
    pub(super) fn backward(&mut self) {
        let one = |k: &&Known| k.2 && k.1.iter().product::<usize>() == 1;
        let known = self.known();
        let losses: Vec<_> = known.iter().filter(one).collect();
        let found = if losses.is_empty() || self.choices.once_in(3) {
            let ways: Vec<_> = known.iter().filter(|k| k.2 && k.3 == Dtype::F32).collect();
            if ways.is_empty() {
                return;
            }
            let newest = ways.len() - 1 - self.choices.below(4.min(ways.len()));
            let mut x = ways[newest].0;
            if self.choices.once_in(3) {
                let shape = ways[newest].1.clone();
                let Some(y) = self.of_shape(&shape) else {
                    return;
                };
                let Some(product) = self.apply(Op::Mul, vec![x, y]) else {
                    return;
                };
                x = product;
            }
            let (dims, keepdim) = (Vec::new(), false);
            let op = match self.choices.below(2) {
                0 => Op::Sum { dims, keepdim },
                _ => Op::Mean { dims, keepdim },
            };
            self.apply(op, vec![x])
        } else {
            let newest = losses.len() - 1 - self.choices.below(3.min(losses.len()));
            Some(losses[newest].0)
        };
        let Some(loss) = found else { return };
        self.push(Statement::Backward(loss));
        if self.choices.once_in(6) {
            self.push(Statement::Backward(loss));
        }
    }

    pub(super) fn optimizer(&mut self) {
        if self.program.optimizers.is_empty() {
            return;
        }
        let number = self.choices.below(self.program.optimizers.len());
        let all: Vec<usize> = self.program.optimizers[number].parameters.clone();
        let any = all.iter().any(|&p| self.oracle.has_grad(p));
        let statement = match self.choices.below(12) {
            0 | 1 => Statement::ZeroGrad(number),
            2 => Statement::StepKeepGrads(number),
            3 if any => {
                let max_norm = *self.choices.of(&[0.5, 1.0, 100.0]);
                Statement::Clip {
                    to: self.next,
                    parameters: all,
                    max_norm,
                }
            }
            4 if any => Statement::GradNorm {
                to: self.next,
                parameters: all,
            },
            5 => Statement::SetLr {
                optimizer: number,
                lr: *self.choices.of(&[0.25, 0.05]),
            },
            _ if any || self.choices.once_in(4) => Statement::Step(number),
            _ => return,
        };
        self.push(statement);
    }

    /// Reads in the middle.
    pub(super) fn look(&mut self) {
        let (x, ..) = self.any();
        let parameter = self.choices.below(self.program.parameters.len());
        let live = self.oracle.live();
        let var = *self.choices.of(&live);
        let inputs = self.oracle.inputs();
        let statement = match self.choices.below(8) {
            0 | 1 => Statement::Read(x),
            2 => Statement::ReadGrad(parameter),
            3 => Statement::Eval(vec![x, self.any().0]),
            4 => Statement::Keep(var),
            5 if !inputs.is_empty() => Statement::ReadLeafGrad(*self.choices.of(&inputs)),
            6 => Statement::Requires(x),
            _ => Statement::Read(Operand::T(var)),
        };
        self.push(statement);
    }

    /// What is seldom done.
    pub(super) fn odd(&mut self) -> bool {
        let parameter = self.choices.below(self.program.parameters.len());
        let live = self.oracle.live();
        let var = *self.choices.of(&live);
        let inputs = self.oracle.inputs();
        let statement = match self.choices.below(11) {
            0..3 => Statement::GradOf {
                to: self.next,
                parameter,
            },
            3 if !inputs.is_empty() => Statement::LeafGrad {
                to: self.next,
                of: *self.choices.of(&inputs),
            },
            4 | 5 => Statement::SetRequiresGrad {
                parameter,
                requires: self.choices.once_in(2),
            },
            6 => Statement::Assign {
                parameter,
                fill: fill(&mut self.choices),
            },
            7 if live.len() > 1 => Statement::Drop(var),
            8 => Statement::Backward(Operand::T(var)),
            9 if self.choices.once_in(4) => Statement::Forget(parameter),
            _ => return self.input(),
        };
        // A tensor that was not made is not there.
        let absent = statement.defines();
        self.push(statement) && absent.is_none_or(|var| self.oracle.is_live(var))
    }
}
