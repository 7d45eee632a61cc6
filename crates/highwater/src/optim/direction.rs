//! What an update goes by where that is made from the gradient by several nodes.

use crate::engine::state::State;
use crate::tensor::parameter::Parameter;
use crate::{Error, Result};
use highwater_graph::{DType, Op, Operand, Site};
use highwater_ops::LerpCell;
use std::sync::Arc;

/// A parameter, its gradient and its statistics, as operands of the nodes that a
/// [`Rule`](super::Rule) makes a direction by. Rules of other crates go by the gradient.
pub struct Direction<'a> {
    state: &'a mut State,
    site: &'a Site,
    of: &'a Parameter,
    statistics: &'a [(String, Parameter)],
    parameter: Operand,
    gradient: Operand,
    step: u64,
}

impl std::fmt::Debug for Direction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direction")
            .field("parameter", &self.parameter)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

impl<'a> Direction<'a> {
    /// Of a parameter, its statistics, and the number of this step.
    pub(super) fn new(
        state: &'a mut State,
        (of, statistics, step): (&'a Parameter, &'a [(String, Parameter)], u64),
        gradient: &Operand,
        site: &'a Site,
    ) -> Result<Self> {
        let mut parameter = of.operand(state)?;
        parameter.requires_grad = false;
        let dtype = Self::dtype(parameter.spec.dtype);
        let engine = of.engine();
        let gradient = engine.in_dtype(state, gradient.clone(), dtype, site)?;
        Ok(Self {
            state,
            site,
            of,
            statistics,
            parameter,
            gradient,
            step,
        })
    }

    /// What gradient, statistics and direction of a parameter are in.
    pub(super) fn dtype(parameter: DType) -> DType {
        match parameter {
            DType::F64 => DType::F64,
            _ => DType::F32,
        }
    }

    /// The parameter before the update.
    pub(super) fn parameter(&self) -> &Operand {
        &self.parameter
    }

    /// Its gradient.
    pub(super) fn gradient(&self) -> &Operand {
        &self.gradient
    }

    /// The number of this step, from 1.
    pub(super) fn step(&self) -> u64 {
        self.step
    }

    /// The output of a node.
    pub(super) fn apply(&mut self, op: impl Op, inputs: &[&Operand]) -> Result<Operand> {
        let inputs: Vec<Operand> = inputs.iter().map(|&input| input.clone()).collect();
        let engine = self.of.engine();
        let outputs = engine.apply(self.state, Arc::new(op), &inputs, self.site)?;
        let none = || Error::Internal("an operation without an output".into());
        outputs.into_iter().next().ok_or_else(none)
    }

    /// An operand in a dtype.
    pub(super) fn cast(&mut self, operand: Operand, dtype: DType) -> Result<Operand> {
        let engine = self.of.engine();
        engine.in_dtype(self.state, operand, dtype, self.site)
    }

    /// Moves a statistic towards a value; answers what it holds then.
    pub(super) fn lerp(&mut self, i: usize, value: &Operand, weight: f64) -> Result<Operand> {
        let none = || Error::Internal(format!("no statistic {i}"));
        let (_, statistic) = self.statistics.get(i).ok_or_else(none)?;
        let inputs = [statistic.operand(self.state)?, value.clone()];
        let op = Arc::new(LerpCell { weight });
        let engine = self.of.engine();
        engine.apply(self.state, op, &inputs, self.site)?;
        statistic.operand(self.state)
    }
}
