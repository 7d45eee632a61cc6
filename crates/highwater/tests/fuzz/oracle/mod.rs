//! A plain interpreter: each statement is computed at once and for good, nothing shares anything.

mod tensors;
mod training;

use crate::array::Array;
use crate::functions::{Invalid, bits};
use crate::optimizers::Moments;
use crate::program::{Dtype, Fill, Operand, ParameterSpec, Program, Statement, Var};
use crate::tape::{Id, Tape, to_bits};
use std::collections::BTreeMap;

/// What the public API is to answer.
#[derive(Debug, Clone)]
pub(crate) enum Expect {
    /// That it is done.
    Done,
    /// These values.
    Values(Array),
    /// These values, or that they are gone.
    ValuesOrGone(Array),
    /// That there is no gradient.
    Absent,
    Flag(bool),
    Moments(Vec<Array>, Vec<u64>),
    Error(Kind),
}

impl Expect {
    /// For counts.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Values(_) => "values",
            Self::ValuesOrGone(_) => "values, or gone",
            Self::Absent => "no gradient",
            Self::Flag(_) => "requires_grad",
            Self::Moments(..) => "moments",
            Self::Error(Kind::Consumed) => "history consumed",
            Self::Error(_) => "usage",
        }
    }
}

/// Typed errors that a program can be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Expired,
    Stale,
    Consumed,
    Usage,
}

/// Whether a tensor has its values after the step.
#[derive(Debug, Clone, PartialEq)]
enum Hold {
    /// It was given, or has storage since a step.
    Held,
    /// If each of these results is small, marked, or was read.
    Pending(Vec<usize>),
    /// A view of a parameter, or of a parameter's gradient.
    Cell(Owned),
    /// Nobody says.
    Unsaid,
}

/// What is written in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owned {
    Parameter,
    GradOf(usize),
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Variable {
    id: Id,
    /// Whole numbers instead of values.
    labels: Option<(Vec<i64>, Vec<usize>)>,
    dtype: Dtype,
    hold: Hold,
    kept: bool,
    read: bool,
    /// Directly made from these parameters, in this step.
    reads: Vec<usize>,
    /// Made by the user, with `requires_grad_()`.
    leaf: bool,
    input: bool,
}

#[derive(Debug, Clone)]
struct ParameterState {
    value: Array,
    dtype: Dtype,
    requires: bool,
    grad: Option<Array>,
    /// It was read by an operation or a view since the last step.
    used: bool,
    /// The user has no handle any more.
    forgotten: bool,
}

#[derive(Debug, Clone)]
struct Stored {
    bytes: usize,
    read: bool,
}

/// What a statement answers, if it is one of a valid program.
type Made = Result<Expect, Invalid>;

#[derive(Debug, Clone)]
pub(crate) struct Oracle {
    tape: Tape,
    variables: BTreeMap<Var, Variable>,
    parameters: Vec<ParameterState>,
    optimizers: Vec<Moments>,
    leaf_grads: BTreeMap<Var, Array>,
    results: Vec<Stored>,
}

fn filled(fill: Fill, shape: &[usize], dtype: Dtype) -> Array {
    let values = Array::exact(shape, fill.values(shape.iter().product()));
    values.map(|v, e| to_bits(v, e, bits(dtype)))
}

impl Oracle {
    pub(crate) fn new(program: &Program) -> Self {
        let parameter = |spec: &ParameterSpec| ParameterState {
            value: filled(spec.fill, &spec.shape, spec.dtype),
            dtype: spec.dtype,
            requires: !spec.frozen,
            grad: None,
            used: false,
            forgotten: false,
        };
        let parameters: Vec<_> = program.parameters.iter().map(parameter).collect();
        let of = |&p: &usize| {
            let state: &ParameterState = &parameters[p];
            (state.value.shape.clone(), !state.requires)
        };
        let optimizers = program.optimizers.iter();
        let optimizers = optimizers
            .map(|spec| Moments::new(spec, spec.parameters.iter().map(of).collect()))
            .collect();
        Self {
            tape: Tape::default(),
            variables: BTreeMap::new(),
            parameters,
            optimizers,
            leaf_grads: BTreeMap::new(),
            results: Vec::new(),
        }
    }

    /// Runs a statement. If it is none of a valid program, nothing has changed.
    pub(crate) fn run(&mut self, statement: &Statement) -> Made {
        if statement
            .defines()
            .is_some_and(|var| self.variables.contains_key(&var))
        {
            return Err(Invalid);
        }
        let gone = |number: &mut usize| self.parameters.get(*number).is_none_or(|p| p.forgotten);
        if statement.clone().parameters_mut().into_iter().any(gone) {
            return Err(Invalid);
        }
        let len = self.tape.len();
        let expected = self.attempt(statement);
        self.tape.no_grad = false;
        if expected.is_err() {
            self.tape.truncate(len);
        }
        expected
    }

    fn attempt(&mut self, statement: &Statement) -> Made {
        match statement {
            Statement::Input {
                to,
                shape,
                fill,
                grad,
            } => {
                self.input(*to, shape, *fill, *grad);
                Ok(Expect::Done)
            }
            Statement::Labels {
                to,
                shape,
                fill,
                below,
                ignore,
            } => {
                if *below == 0 {
                    return Err(Invalid);
                }
                let labels = fill.labels(shape.iter().product(), *below, *ignore);
                let id = self.tape.leaf(Array::full(&[], 0.0), None);
                self.define(*to, id, Hold::Held).labels = Some((labels, shape.clone()));
                Ok(Expect::Done)
            }
            Statement::Apply {
                to,
                op,
                on,
                no_grad,
                ..
            } => self.apply(*to, op, on, *no_grad),
            Statement::Sequential {
                to,
                ops,
                on,
                segments,
            } => self.sequential(*to, ops, *on, *segments),
            Statement::Drop(var) => self
                .variables
                .remove(var)
                .map(|_| Expect::Done)
                .ok_or(Invalid),
            Statement::Keep(var) => {
                self.variables.get_mut(var).ok_or(Invalid)?.kept = true;
                Ok(Expect::Done)
            }
            Statement::Eval(on) => self.eval(on),
            Statement::Read(on) => self.read(*on),
            Statement::Requires(on) => self.requires(*on),
            Statement::Backward(on) => self.backward(*on),
            Statement::Step(optimizer) => self.step(*optimizer, false),
            Statement::StepKeepGrads(optimizer) => self.step(*optimizer, true),
            Statement::Clip {
                to,
                parameters,
                max_norm,
            } => self.clip(*to, parameters, *max_norm),
            Statement::GradNorm { to, parameters } => self.grad_norm(*to, parameters),
            Statement::Assign { parameter, fill } => self.assign(*parameter, *fill),
            Statement::GradOf { to, parameter } => self.grad_of(*to, *parameter),
            Statement::LeafGrad { to, of } => self.leaf_grad(*to, *of),
            other => self.attempt_state(other),
        }
    }

    /// What is one look at the state, or one change of it.
    fn attempt_state(&mut self, statement: &Statement) -> Made {
        match statement {
            Statement::ReadGrad(parameter) => {
                let grad = &self.parameter(*parameter)?.grad;
                return Ok(grad.clone().map_or(Expect::Absent, Expect::Values));
            }
            Statement::ReadLeafGrad(var) => {
                let leaf = self.variables.get(var).filter(|v| v.input).ok_or(Invalid)?;
                let grad = self.leaf_grads.get(var).filter(|_| leaf.leaf);
                return Ok(grad.cloned().map_or(Expect::Absent, Expect::Values));
            }
            Statement::ReadMoments(optimizer) => {
                let state = self.optimizers.get(*optimizer).ok_or(Invalid)?;
                return Ok(Expect::Moments(state.all(), state.steps()));
            }
            Statement::ZeroGrad(optimizer) => {
                for parameter in self.optimizers.get(*optimizer).ok_or(Invalid)?.parameters() {
                    self.set_grad(parameter, None);
                }
            }
            Statement::SetLr { optimizer, lr } => {
                self.optimizers
                    .get_mut(*optimizer)
                    .ok_or(Invalid)?
                    .set_lr(*lr);
            }
            Statement::SetRequiresGrad {
                parameter,
                requires,
            } => {
                if self.parameter(*parameter)?.dtype != Dtype::F32 {
                    return Err(Invalid);
                }
                self.parameters[*parameter].requires = *requires;
            }
            Statement::Forget(parameter) => self.parameters[*parameter].forgotten = true,
            _ => return Err(Invalid),
        }
        Ok(Expect::Done)
    }

    fn parameter(&self, number: usize) -> Result<&ParameterState, Invalid> {
        self.parameters.get(number).ok_or(Invalid)
    }

    fn define(&mut self, to: Var, id: Id, hold: Hold) -> &mut Variable {
        let variable = Variable {
            id,
            labels: None,
            dtype: Dtype::F32,
            hold,
            kept: false,
            read: false,
            reads: Vec::new(),
            leaf: false,
            input: false,
        };
        self.variables.entry(to).insert_entry(variable).into_mut()
    }

    /// Storage of its own, if it comes to that.
    fn result(&mut self, id: Id) -> Hold {
        let bytes = 4 * self.tape.value(id).len();
        self.results.push(Stored { bytes, read: false });
        Hold::Pending(vec![self.results.len() - 1])
    }

    /// Only numbers that `f32` computes to some digits are tried.
    fn bounded(&self, id: Id) -> Result<(), Invalid> {
        let value = self.tape.value(id);
        let sound = value.largest() <= 1e4 && value.looseness() <= 1e-3;
        if sound { Ok(()) } else { Err(Invalid) }
    }

    /// Everything that a user can read at the end.
    pub(crate) fn audit(&self) -> Vec<Statement> {
        let mut all = Vec::new();
        for (&var, variable) in &self.variables {
            all.push(Statement::Read(Operand::T(var)));
            if variable.labels.is_none() && !matches!(variable.hold, Hold::Unsaid) {
                all.push(Statement::Requires(Operand::T(var)));
            }
            if variable.input {
                all.push(Statement::ReadLeafGrad(var));
            }
        }
        for number in
            (0..self.parameters.len()).filter(|&number| !self.parameters[number].forgotten)
        {
            let operand = Operand::P(number);
            all.extend([
                Statement::Read(operand),
                Statement::Requires(operand),
                Statement::ReadGrad(number),
            ]);
        }
        all.extend((0..self.optimizers.len()).map(Statement::ReadMoments));
        all
    }

    /// What a generator wants to know: tensors to compute with, newest last, with shapes, and whether
    /// gradients flow through them.
    pub(crate) fn tensors(&self) -> Vec<(Operand, Vec<usize>, bool, Dtype)> {
        let usable = self.variables.iter();
        usable
            .filter(|(_, v)| v.labels.is_none() && v.hold != Hold::Unsaid)
            .map(|(&var, v)| {
                let shape = self.tape.shape(v.id).to_vec();
                (Operand::T(var), shape, self.tape.requires(v.id), v.dtype)
            })
            .collect()
    }

    pub(crate) fn is_live(&self, var: Var) -> bool {
        self.variables.contains_key(&var)
    }

    /// Tensors that are there in whatever state.
    pub(crate) fn live(&self) -> Vec<Var> {
        self.variables.keys().copied().collect()
    }

    pub(crate) fn inputs(&self) -> Vec<Var> {
        let inputs = self.variables.iter().filter(|(_, v)| v.input);
        inputs.map(|(&var, _)| var).collect()
    }

    pub(crate) fn is_forgotten(&self, parameter: usize) -> bool {
        self.parameters[parameter].forgotten
    }

    pub(crate) fn has_grad(&self, parameter: usize) -> bool {
        self.parameters[parameter].grad.is_some()
    }
}
