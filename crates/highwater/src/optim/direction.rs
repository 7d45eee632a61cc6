//! What an update goes by where that is made from the gradient by operations on tensors.

use crate::Result;
use crate::engine::Engine;
use crate::engine::hooks::unlocked;
use crate::engine::lock::Locked;
use crate::error::usage_error;
use crate::optim::Rule;
use crate::pending::context::{in_update, site};
use crate::tensor::parameter::Parameter;
use crate::tensor::{Tensor, check_one_engine};
use highwater_graph::{DType, Location, Op, Operand, Phase};
use highwater_ops::{Assign, LerpCell};
use std::sync::Arc;

/// A parameter, its gradient and its statistics, from which a [`Rule`] makes what the parameter is updated by.
#[derive(Debug)]
pub struct Direction<'a> {
    of: &'a Parameter,
    gradient: Tensor,
    statistics: &'a [(String, Parameter)],
    step: u64,
}

impl Direction<'_> {
    /// What gradient, statistics and direction of a parameter are in.
    pub(super) fn dtype(parameter: DType) -> DType {
        match parameter {
            DType::F64 => DType::F64,
            _ => DType::F32,
        }
    }

    /// The parameter before the update, in its own dtype.
    pub fn parameter(&self) -> &Tensor {
        self.of
    }

    /// Its gradient, in `F32`, or in `F64` for such a parameter.
    pub fn gradient(&self) -> &Tensor {
        &self.gradient
    }

    /// The number of this step of the parameter, from 1: what bias corrections count.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// A number of shape `[]` in the gradient's dtype, for what changes from step to step, such as a bias correction.
    /// The numbers of `mul_scalar` and the like are part of a step's structure: where one changes, the step is planned
    /// anew. What a tensor holds is not.
    ///
    /// # Errors
    /// [`crate::Error::State`] if there is no room.
    #[track_caller]
    pub fn number(&self, value: f64) -> Result<Tensor> {
        let engine = self.of.engine();
        match self.gradient.dtype() {
            DType::F64 => Tensor::from_slice(engine, &[value], []),
            _ => Tensor::from_slice(engine, &[value as f32], []),
        }
    }

    /// A statistic of [`Rule::statistics`] as it is now: before this step, or as it was written last in it.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a name that the rule has not given.
    #[track_caller]
    pub fn statistic(&self, name: &str) -> Result<&Tensor> {
        Ok(self.find(name, Location::caller())?)
    }

    /// Moves a statistic towards `value`: `statistic += weight (value - statistic)`, as `Tensor.lerp_` of PyTorch.
    /// With a weight of `1 - beta` it is an average that decays by `beta`. Returns what it holds then.
    ///
    /// # Errors
    /// As [`Direction::statistic`]; [`crate::Error::Op`] for a value of another shape or dtype.
    #[track_caller]
    pub fn lerp(&self, name: &str, value: &Tensor, weight: f64) -> Result<Tensor> {
        let op = Arc::new(LerpCell { weight });
        self.write(op, name, value, Location::caller())
    }

    /// Replaces what a statistic holds. Returns what it holds then.
    ///
    /// # Errors
    /// As [`Direction::lerp`].
    #[track_caller]
    pub fn assign(&self, name: &str, value: &Tensor) -> Result<Tensor> {
        self.write(Arc::new(Assign), name, value, Location::caller())
    }

    /// The gradient, negated to maximize, and with a share of the parameter added to it: an L2 penalty.
    pub(super) fn penalized(&self, weight_decay: f64, maximize: bool) -> Result<Tensor> {
        let mut gradient = self.gradient.clone();
        if maximize {
            gradient = gradient.neg()?;
        }
        if weight_decay != 0.0 {
            let parameter = self.of.to_dtype(gradient.dtype())?;
            gradient = gradient.add(&parameter.mul_scalar(weight_decay)?)?;
        }
        Ok(gradient)
    }

    /// Adam's two moments after this step, `exp_avg` and `exp_avg_sq`.
    pub(super) fn moments(
        &self,
        gradient: &Tensor,
        (beta1, beta2): (f64, f64),
    ) -> Result<(Tensor, Tensor)> {
        let average = self.lerp("exp_avg", gradient, 1.0 - beta1)?;
        let squares = self.lerp("exp_avg_sq", &gradient.square()?, 1.0 - beta2)?;
        Ok((average, squares))
    }

    /// What an average that started at 0 and decays by `beta` is to be divided by after this step.
    pub(super) fn correction(&self, beta: f64) -> f64 {
        1.0 - beta.powf(self.step as f64)
    }

    fn find(&self, name: &str, location: Location) -> Result<&Parameter> {
        let mut all = self.statistics.iter();
        let found = all.find(|(kind, _)| kind == name);
        found.map(|(_, statistic)| statistic).ok_or_else(|| {
            let names: Vec<&str> = self.statistics.iter().map(|(name, _)| &**name).collect();
            let message = format!("no statistic is called `{name}`: the rule has {names:?}");
            usage_error(message, location)
        })
    }

    fn write(
        &self,
        op: Arc<dyn Op>,
        name: &str,
        value: &Tensor,
        location: Location,
    ) -> Result<Tensor> {
        let statistic = self.find(name, location)?;
        check_one_engine(name, &[statistic, value], location)?;
        let engine = statistic.engine();
        let mut locked = engine.lock();
        let state = &mut *locked;
        // Who holds what an earlier write of this step left keeps that.
        engine.keep_read_cells(state, |id| id == statistic.id(), location)?;
        let mut from = value.operand(state)?;
        from.requires_grad = false;
        let to = statistic.operand(state)?;
        if from.source == to.source {
            from = engine.own_copy(state, from, location)?;
        }
        engine.apply(state, op, &[to, from], &site(location, Phase::Update))?;
        let written = statistic.operand(state)?;
        Ok(Tensor::pending(engine, state, written, location))
    }
}

/// Has a rule make the direction of a parameter, given its statistics and the number of this step, with the engine
/// unlocked: what makes it may be a user's code. Its nodes belong to the update.
pub(super) fn directed<'e>(
    engine: &'e Engine,
    mut state: Locked<'e>,
    rule: &impl Rule,
    (of, statistics, step): (&Parameter, &[(String, Parameter)], u64),
    gradient: &Operand,
    location: Location,
) -> Result<(Locked<'e>, Operand)> {
    let (dtype, site) = (Direction::dtype(of.dtype()), site(location, Phase::Update));
    let mut gradient = engine.in_dtype(&mut state, gradient.clone(), dtype, &site)?;
    gradient.requires_grad = false;
    let direction = Direction {
        of,
        gradient: Tensor::pending(engine, &mut state, gradient, location),
        statistics,
        step,
    };
    let run = || in_update(|| rule.direction(&direction));
    let (mut state, made) = unlocked(engine, state, "the direction of an update", location, run)?;
    check_one_engine("a direction", &[of, &made], location)?;
    if made.shape() != of.shape() {
        drop(state);
        let (name, shape, other) = (of.name(), of.shape(), made.shape());
        let message = format!("a direction of shape {other} for `{name}` of shape {shape}");
        return Err(usage_error(message, location));
    }
    let made = made.operand(&mut state)?;
    let mut made = engine.in_dtype(&mut state, made, dtype, &site)?;
    made.requires_grad = false;
    Ok((state, made))
}
