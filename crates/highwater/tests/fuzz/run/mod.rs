//! Runs a program through the public API.

mod calls;

use crate::config::Config;
use crate::oracle::Kind;
use crate::program::{Operand, Program, Statement, Var};
use calls::{apply, f32s, frozen, moments, optimizer, read_parameter, stepped, values};
use highwater::op::OpError;
use highwater::optim::{Optimizer, clip_grad_norm_, grad_norm};
use highwater::{
    CheckpointPolicy, Engine, Error, Parameter, Tensor, checkpoint, checkpoint_sequential,
    checkpoint_with, eval, no_grad,
};
use std::collections::BTreeMap;

/// What the public API answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Done,
    /// In bits, so that they can be compared whatever they are.
    Values(Vec<u32>),
    Absent,
    Flag(bool),
    Moments(Vec<Vec<u32>>, Vec<u64>),
    /// A typed error that a program can be answered with.
    Error(Kind, String),
    /// There was no room.
    Refused(String),
    /// What no program may be answered with.
    Broken(String),
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Expired { .. } => Self::Error(Kind::Expired, text),
            Error::HistoryConsumed { .. } => Self::Error(Kind::Consumed, text),
            Error::Op { source, .. } if matches!(*source, OpError::StaleCell { .. }) => {
                Self::Error(Kind::Stale, text)
            }
            Error::Usage { .. } => Self::Error(Kind::Usage, text),
            Error::OverBudget { .. }
            | Error::State { .. }
            | Error::HostFull { .. }
            | Error::DiskFull { .. } => Self::Refused(text),
            _ => Self::Broken(text),
        }
    }
}

type Answer = Result<Outcome, Error>;

pub(crate) struct Runner {
    engine: Engine,
    parameters: Vec<Option<Parameter>>,
    optimizers: Vec<Box<dyn Optimizer>>,
    tensors: BTreeMap<Var, Tensor>,
}

impl Runner {
    /// An engine with the program's parameters and optimizers.
    pub(crate) fn new(program: &Program, config: &Config) -> Result<Self, Error> {
        let engine = config.build()?;
        let mut parameters = Vec::new();
        for spec in &program.parameters {
            let values = f32s(spec.fill, spec.shape.iter().product());
            let shape = &spec.shape[..];
            parameters.push(if spec.frozen {
                frozen(&engine, spec.dtype, shape, &values)?
            } else {
                Parameter::new(&engine, shape, |to| to.copy_from_slice(&values))?
            });
        }
        for (number, parameter) in parameters.iter().enumerate() {
            parameter.set_name(&format!("p{number}"));
        }
        let optimizers = program
            .optimizers
            .iter()
            .map(|spec| optimizer(spec, &parameters));
        let optimizers = optimizers.collect::<Result<_, _>>()?;
        let parameters = parameters.into_iter().map(Some).collect();
        Ok(Self {
            engine,
            parameters,
            optimizers,
            tensors: BTreeMap::new(),
        })
    }

    /// Whether it refuses tensors of another engine.
    pub(crate) fn refuses(&self, other: &Self) -> bool {
        let one = |runner: &Self| runner.engine.tensor(&[1.0], [1]);
        let sum = one(self).and_then(|a| a.add(&one(other)?));
        matches!(sum, Err(Error::OtherEngine { .. }))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs the statements from the first on that belong together, and answers each.
    pub(crate) fn run(&mut self, statements: &[Statement]) -> Vec<Outcome> {
        let region = |statement: &Statement| match statement {
            Statement::Apply { checkpoint, .. } => *checkpoint,
            _ => None,
        };
        let Some(number) = region(&statements[0]) else {
            return vec![self.one(&statements[0])];
        };
        let inside = statements
            .iter()
            .take_while(|statement| region(statement) == Some(number));
        let any = match &statements[0] {
            Statement::Apply { on, .. } => self.tensor(on[0]).clone(),
            _ => unreachable!("a region is of operations"),
        };
        let mut outcomes = Vec::new();
        let run = |_: &Tensor| -> Result<(), Error> {
            outcomes.extend(inside.map(|statement| self.one(statement)));
            Ok(())
        };
        let policies = [
            CheckpointPolicy::MustRecompute,
            CheckpointPolicy::PreferSave,
        ];
        let ended = match number % 3 {
            0 => checkpoint(run, &any),
            1 => checkpoint_with(|_| policies[0], run, &any),
            _ => checkpoint_with(|op| policies[op.name.len() % 2], run, &any),
        };
        if let Err(error) = ended
            && let Some(last) = outcomes.last_mut()
        {
            *last = Outcome::from(error);
        }
        outcomes
    }

    fn one(&mut self, statement: &Statement) -> Outcome {
        self.attempt(statement).unwrap_or_else(Outcome::from)
    }

    fn tensor(&self, operand: Operand) -> &Tensor {
        match operand {
            Operand::T(var) => &self.tensors[&var],
            Operand::P(number) => self.parameter(number),
        }
    }

    fn parameter(&self, number: usize) -> &Parameter {
        self.parameters[number]
            .as_ref()
            .expect("forgotten parameters are not named")
    }

    fn attempt(&mut self, statement: &Statement) -> Answer {
        match statement {
            Statement::Input { .. }
            | Statement::Labels { .. }
            | Statement::Apply { .. }
            | Statement::Sequential { .. }
            | Statement::Clip { .. }
            | Statement::GradNorm { .. } => {
                let made = self.made(statement)?;
                self.tensors
                    .extend(statement.defines().map(|to| (to, made)));
            }
            Statement::GradOf { to, parameter } => {
                let grad = self.parameter(*parameter).grad();
                return Ok(self.define_or_not(*to, grad));
            }
            Statement::LeafGrad { to, of } => {
                let grad = self.tensors[of].grad();
                return Ok(self.define_or_not(*to, grad));
            }
            Statement::Keep(var) => drop(self.tensors[var].clone().keep()),
            Statement::Eval(on) => eval(on.iter().map(|&operand| self.tensor(operand)))?,
            Statement::Drop(var) => drop(self.tensors.remove(var)),
            Statement::Backward(on) => self.tensor(*on).backward()?,
            Statement::ZeroGrad(number) => self.optimizers[*number].zero_grad(),
            Statement::Step(number) => return Ok(stepped(self.optimizers[*number].step()?)),
            Statement::StepKeepGrads(number) => {
                return Ok(stepped(self.optimizers[*number].step_keep_grads()?));
            }
            Statement::SetLr { optimizer, lr } => {
                self.optimizers[*optimizer].set_lr(*lr).expect("a rate");
            }
            Statement::SetRequiresGrad {
                parameter,
                requires,
            } => {
                self.parameter(*parameter).set_requires_grad(*requires);
            }
            Statement::Assign { parameter, fill } => {
                let to = self.parameter(*parameter);
                to.copy_from_slice(&f32s(*fill, to.shape().numel()))?;
            }
            Statement::Forget(parameter) => self.parameters[*parameter] = None,
            reads => return self.read(reads),
        }
        Ok(Outcome::Done)
    }

    /// What only looks.
    fn read(&self, statement: &Statement) -> Answer {
        match statement {
            Statement::Read(Operand::P(number)) => read_parameter(self.parameter(*number)),
            Statement::Read(on) => values(self.tensor(*on)),
            Statement::Requires(on) => Ok(Outcome::Flag(self.tensor(*on).requires_grad()?)),
            Statement::ReadGrad(parameter) => {
                let grad = self.parameter(*parameter).grad();
                grad.map_or(Ok(Outcome::Absent), |grad| values(&grad))
            }
            Statement::ReadLeafGrad(var) => {
                let grad = self.tensors[var].grad();
                grad.map_or(Ok(Outcome::Absent), |grad| values(&grad))
            }
            Statement::ReadMoments(number) => moments(self.optimizers[*number].as_ref()),
            other => unreachable!("{other:?} is no read"),
        }
    }

    /// The tensor that a statement makes.
    fn made(&self, statement: &Statement) -> Result<Tensor, Error> {
        let picked = |parameters: &[usize]| -> Vec<Parameter> {
            let one = |&p: &usize| self.parameter(p).clone();
            parameters.iter().map(one).collect()
        };
        match statement {
            Statement::Input {
                shape, fill, grad, ..
            } => {
                let values = f32s(*fill, shape.iter().product());
                let tensor = self.engine.tensor(&values, &shape[..])?;
                if *grad {
                    tensor.requires_grad_()
                } else {
                    Ok(tensor)
                }
            }
            Statement::Labels {
                shape,
                fill,
                below,
                ignore,
                ..
            } => {
                let labels = fill.labels(shape.iter().product(), *below, *ignore);
                if *ignore {
                    return Tensor::from_slice(&self.engine, &labels, &shape[..]);
                }
                let small: Vec<u32> = labels.iter().map(|&label| label as u32).collect();
                self.engine.indices(&small, &shape[..])
            }
            Statement::Apply {
                op,
                on,
                no_grad: without,
                ..
            } => {
                let on: Vec<&Tensor> = on.iter().map(|&operand| self.tensor(operand)).collect();
                if *without {
                    no_grad(|| apply(op, &on))
                } else {
                    apply(op, &on)
                }
            }
            Statement::Sequential {
                ops, on, segments, ..
            } => {
                let each = ops.iter().map(|op| move |x: &Tensor| apply(op, &[x]));
                checkpoint_sequential(each, *segments, self.tensor(*on))
            }
            Statement::Clip {
                parameters,
                max_norm,
                ..
            } => clip_grad_norm_(&picked(parameters), *max_norm),
            Statement::GradNorm { parameters, .. } => grad_norm(&picked(parameters)),
            other => unreachable!("{other:?} makes no tensor"),
        }
    }

    fn define_or_not(&mut self, to: Var, tensor: Option<Tensor>) -> Outcome {
        let Some(tensor) = tensor else {
            return Outcome::Absent;
        };
        self.tensors.insert(to, tensor);
        Outcome::Done
    }
}
