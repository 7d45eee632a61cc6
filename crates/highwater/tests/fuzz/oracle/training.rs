//! Gradients, steps, and what outlives them.

use super::{Expect, Hold, Kind, Made, Oracle, Owned, Variable, filled};
use crate::array::Array;
use crate::functions::Invalid;
use crate::optimizers::{clip, norm};
use crate::program::{Dtype, Fill, Operand, Var};
use crate::tape::{Owner, Tape};

/// Values of at most this many bytes outlive a step.
const SMALL_BYTES: usize = 64 << 10;

/// Whether a view outlives that what it is of is written.
fn is_small(tape: &Tape, variable: &Variable) -> bool {
    variable.kept || 4 * tape.value(variable.id).len() <= SMALL_BYTES
}

impl Oracle {
    /// A parameter's gradient, held.
    pub(super) fn grad_of(&mut self, to: Var, parameter: usize) -> Made {
        let Some(grad) = self.parameter(parameter)?.grad.clone() else {
            return Ok(Expect::Absent);
        };
        let id = self.tape.leaf(grad, None);
        self.define(to, id, Hold::Cell(Owned::GradOf(parameter)));
        Ok(Expect::Done)
    }

    /// The gradient of what the user gave, held.
    pub(super) fn leaf_grad(&mut self, to: Var, of: Var) -> Made {
        self.variables.get(&of).filter(|v| v.input).ok_or(Invalid)?;
        let Some(grad) = self.leaf_grads.get(&of).cloned() else {
            return Ok(Expect::Absent);
        };
        let id = self.tape.leaf(grad, None);
        self.define(to, id, Hold::Held);
        Ok(Expect::Done)
    }

    pub(super) fn grad_norm(&mut self, to: Var, parameters: &[usize]) -> Made {
        let Some(norm) = self.norm(parameters)? else {
            return Ok(Expect::Error(Kind::Usage));
        };
        self.define_norm(to, norm);
        Ok(Expect::Done)
    }

    pub(super) fn backward(&mut self, on: Operand) -> Made {
        let (root, dtype) = self.operand(on)?;
        if dtype != Dtype::F32 {
            return Err(Invalid);
        }
        if !self.tape.requires(root) || self.tape.value(root).len() != 1 {
            return Ok(Expect::Error(Kind::Usage));
        }
        let Ok(grads) = self.tape.backward(root) else {
            return Ok(Expect::Error(Kind::Consumed));
        };
        let mut added = Vec::new();
        for (owner, grad) in grads {
            let before = match owner {
                Owner::Parameter(number) => self.parameters[number].grad.as_ref(),
                Owner::Input(var) => self.leaf_grads.get(&var),
            };
            let sum = before.map_or_else(|| grad.clone(), |before| before.plus(&grad));
            if sum.largest() > 1e5 || sum.looseness() > 1e-2 {
                return Err(Invalid);
            }
            added.push((owner, sum));
        }
        for (owner, sum) in added {
            match owner {
                Owner::Parameter(number) => {
                    // Else frozen since the forward part.
                    if self.parameters[number].requires {
                        self.set_grad(number, Some(sum));
                    }
                }
                Owner::Input(var) => {
                    self.leaf_grads.insert(var, sum);
                }
            }
        }
        Ok(Expect::Done)
    }

    pub(super) fn step(&mut self, optimizer: usize, keep: bool) -> Made {
        let mut moments = self.optimizers.get(optimizer).ok_or(Invalid)?.clone();
        let mut updated = Vec::new();
        for (slot, parameter) in moments.parameters().into_iter().enumerate() {
            let state = &self.parameters[parameter];
            if let Some(grad) = &state.grad {
                let value = moments.update(slot, &state.value, grad);
                if value.largest() > 1e4 || value.looseness() > 1e-2 {
                    return Err(Invalid);
                }
                updated.push((parameter, value));
            }
        }
        for (parameter, value) in updated {
            self.parameters[parameter].value = value;
            if !keep {
                self.set_grad(parameter, None);
            }
        }
        self.optimizers[optimizer] = moments;
        self.end_of_step();
        Ok(Expect::Done)
    }

    /// Another gradient: what was read of the one before is as it was then, if it is small or marked.
    pub(super) fn set_grad(&mut self, parameter: usize, grad: Option<Array>) {
        self.parameters[parameter].grad = grad;
        for variable in self.variables.values_mut() {
            if variable.hold == Hold::Cell(Owned::GradOf(parameter))
                && !is_small(&self.tape, variable)
            {
                variable.hold = Hold::Unsaid;
            }
        }
    }

    fn end_of_step(&mut self) {
        self.tape.epoch += 1;
        let kept: Vec<usize> = self
            .variables
            .values()
            .filter(|variable| variable.kept)
            .filter_map(|variable| match &variable.hold {
                Hold::Pending(results) if results.len() == 1 => Some(results[0]),
                _ => None,
            })
            .collect();
        for variable in self.variables.values_mut() {
            let stays = |&i: &usize| {
                self.results[i].bytes <= SMALL_BYTES || self.results[i].read || kept.contains(&i)
            };
            variable.hold = match &variable.hold {
                Hold::Cell(_) if is_small(&self.tape, variable) => Hold::Held,
                Hold::Pending(all) if variable.read || variable.kept || all.iter().all(stays) => {
                    Hold::Held
                }
                Hold::Cell(_) | Hold::Pending(_) => Hold::Unsaid,
                other => other.clone(),
            };
            variable.reads.clear();
        }
        for parameter in &mut self.parameters {
            parameter.used = false;
        }
    }

    /// The norm of the gradients that there are; `Ok(None)` if there is none.
    fn norm(&self, parameters: &[usize]) -> Result<Option<(f64, f64)>, Invalid> {
        let mut grads = Vec::new();
        for &parameter in parameters {
            grads.extend(&self.parameters.get(parameter).ok_or(Invalid)?.grad);
        }
        if grads.is_empty() {
            return Ok(None);
        }
        norm(&grads).map(Some).ok_or(Invalid)
    }

    fn define_norm(&mut self, to: Var, (value, error): (f64, f64)) {
        let array = Array {
            shape: Vec::new(),
            value: vec![value],
            error: vec![error],
        };
        let id = self.tape.leaf(array, None);
        let hold = self.result(id);
        self.define(to, id, hold);
    }

    pub(super) fn clip(&mut self, to: Var, parameters: &[usize], max_norm: f64) -> Made {
        let Some(norm) = self.norm(parameters)? else {
            return Ok(Expect::Error(Kind::Usage));
        };
        for &parameter in parameters {
            if let Some(grad) = &self.parameters[parameter].grad {
                let clipped = clip(grad, norm, max_norm);
                self.set_grad(parameter, Some(clipped));
            }
        }
        self.define_norm(to, norm);
        Ok(Expect::Done)
    }

    pub(super) fn assign(&mut self, parameter: usize, fill: Fill) -> Made {
        let state = self.parameters.get(parameter).ok_or(Invalid)?;
        if state.dtype != Dtype::F32 {
            return Err(Invalid);
        }
        // What becomes of those that read it depends on what is held: `it/writes.rs` looks at that.
        let mut variables = self.variables.values();
        if variables.any(|v| v.reads.contains(&parameter)) {
            return Err(Invalid);
        }
        if state.used {
            // Whether something still waits for it depends on what was dropped.
            return Err(Invalid);
        }
        let state = &mut self.parameters[parameter];
        state.value = filled(fill, &state.value.shape.clone(), Dtype::F32);
        Ok(Expect::Done)
    }
}
