//! Tensors: what is made of them, and what reads answer.

use super::{Expect, Hold, Made, Oracle, Owned, Variable, filled};
use crate::array::Array;
use crate::functions::{self, Invalid};
use crate::program::{Dtype, Fill, Op, Operand, Var};
use crate::tape::{Id, Owner};

impl Oracle {
    pub(super) fn input(&mut self, to: Var, shape: &[usize], fill: Fill, grad: bool) {
        let value = filled(fill, shape, Dtype::F32);
        let id = self.tape.leaf(value, grad.then_some(Owner::Input(to)));
        let variable = self.define(to, id, Hold::Held);
        (variable.leaf, variable.input) = (grad, true);
    }

    pub(super) fn sequential(&mut self, to: Var, ops: &[Op], on: Operand, segments: usize) -> Made {
        let (mut id, dtype) = self.operand(on)?;
        if dtype != Dtype::F32 || !(1..=ops.len()).contains(&segments) {
            return Err(Invalid);
        }
        for op in ops {
            id = functions::apply(&mut self.tape, op, &[id], None)?;
        }
        self.bounded(id)?;
        let hold = self.result(id);
        self.define(to, id, hold);
        self.note_reads(to, &[on]);
        Ok(Expect::Done)
    }

    /// What is computed with.
    pub(super) fn operand(&mut self, operand: Operand) -> Result<(Id, Dtype), Invalid> {
        match operand {
            Operand::P(number) => {
                let state = self.parameters.get_mut(number).ok_or(Invalid)?;
                state.used = true;
                let owner = state.requires.then_some(Owner::Parameter(number));
                let (value, dtype) = (state.value.clone(), state.dtype);
                Ok((self.tape.leaf(value, owner), dtype))
            }
            Operand::T(var) => {
                let variable = self.variables.get(&var).ok_or(Invalid)?;
                if variable.labels.is_some() || variable.hold == Hold::Unsaid {
                    return Err(Invalid);
                }
                Ok((variable.id, variable.dtype))
            }
        }
    }

    pub(super) fn apply(&mut self, to: Var, op: &Op, on: &[Operand], no_grad: bool) -> Made {
        let mut labels = None;
        let (mut ids, mut dtypes) = (Vec::new(), Vec::new());
        for &operand in on {
            let found = match operand {
                Operand::T(var) => self.variables.get(&var).and_then(|v| v.labels.clone()),
                Operand::P(_) => None,
            };
            if let Some(found) = found {
                labels = Some(found);
                continue;
            }
            let (id, dtype) = self.operand(operand)?;
            ids.push(id);
            dtypes.push(dtype);
        }
        let is_view = op.is_view() || *op == Op::ToF32 && dtypes == [Dtype::F32];
        if !is_view && *op != Op::ToF32 && dtypes.iter().any(|&dtype| dtype != Dtype::F32) {
            return Err(Invalid);
        }
        let labels = labels
            .as_ref()
            .map(|(labels, shape)| (&labels[..], &shape[..]));
        self.tape.no_grad = no_grad;
        let id = functions::apply(&mut self.tape, op, &ids, labels)?;
        self.bounded(id)?;
        let hold = self.hold_of(op, on, id);
        let variable = self.define(to, id, hold);
        if op.is_view() {
            variable.dtype = dtypes[0];
        } else {
            self.note_reads(to, on);
        }
        Ok(Expect::Done)
    }

    /// Whether the result of an operation outlives the step.
    fn hold_of(&mut self, op: &Op, on: &[Operand], id: Id) -> Hold {
        if !op.is_view() {
            return self.result(id);
        }
        let from = match on[0] {
            Operand::P(_) => Hold::Cell(Owned::Parameter),
            Operand::T(var) => self.variables[&var].hold.clone(),
        };
        // Either a view or a copy.
        if matches!(op, Op::Reshape(_) | Op::Contiguous) {
            return match (from, self.result(id)) {
                (Hold::Pending(mut from), Hold::Pending(own)) => {
                    from.extend(own);
                    Hold::Pending(from)
                }
                (Hold::Held, own) => own,
                (from, _) => from,
            };
        }
        from
    }

    fn note_reads(&mut self, to: Var, on: &[Operand]) {
        let requires = |v: &Variable| self.tape.requires(v.id);
        let read = |operand: &Operand| match operand {
            Operand::P(number) => Some(*number),
            Operand::T(_) => None,
        };
        if self.variables.get(&to).is_some_and(requires)
            && let Some(variable) = self.variables.get_mut(&to)
        {
            variable.reads = on.iter().filter_map(read).collect();
        }
    }

    pub(super) fn read(&mut self, on: Operand) -> Made {
        let Operand::T(var) = on else {
            let Operand::P(number) = on else {
                return Err(Invalid);
            };
            return Ok(Expect::Values(
                self.parameters.get(number).ok_or(Invalid)?.value.clone(),
            ));
        };
        let variable = self.variables.get_mut(&var).ok_or(Invalid)?;
        if let Some((labels, shape)) = &variable.labels {
            let values = labels.iter().map(|&label| label as f64).collect();
            return Ok(Expect::Values(Array::exact(shape, values)));
        }
        let value = self.tape.value(variable.id).clone();
        Ok(match &variable.hold {
            Hold::Unsaid => Expect::ValuesOrGone(value),
            Hold::Pending(results) => {
                variable.read = true;
                if let [one] = results[..] {
                    self.results[one].read = true;
                }
                Expect::Values(value)
            }
            Hold::Held | Hold::Cell(_) => Expect::Values(value),
        })
    }

    pub(super) fn eval(&mut self, on: &[Operand]) -> Made {
        for &operand in on {
            match self.read(operand)? {
                Expect::Values(_) => {}
                _ => return Err(Invalid),
            }
        }
        for operand in on {
            if let Operand::T(var) = operand
                && let Some(variable) = self.variables.get_mut(var)
            {
                variable.kept = true;
            }
        }
        Ok(Expect::Done)
    }

    pub(super) fn requires(&self, on: Operand) -> Made {
        Ok(match on {
            Operand::P(number) => {
                Expect::Flag(self.parameters.get(number).ok_or(Invalid)?.requires)
            }
            Operand::T(var) => {
                let variable = self.variables.get(&var).ok_or(Invalid)?;
                match variable.hold {
                    Hold::Unsaid => return Err(Invalid),
                    _ => Expect::Flag(self.tape.requires(variable.id)),
                }
            }
        })
    }
}
