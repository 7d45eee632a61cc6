//! Writes of parameters and buffers that are part of the graph: updates by hand, running statistics.

use super::Tensor;
use super::parameter::Parameter;
use crate::Result;
use crate::error::usage_error;
use crate::pending::context::{is_grad_enabled, site};
use highwater_graph::{Location, Op, Phase, Source};
use highwater_ops::{Accumulate, Assign, LerpCell, MulScalar};
use std::sync::Arc;

/// How many writes of one cell may be pending: who never trains still reads bounded graphs.
const PENDING: u32 = 64;

impl Parameter {
    /// Replaces what it holds by `value`, a tensor of its shape, as `parameter.copy_(value)`; `value` is cast to its
    /// dtype.
    ///
    /// The write is part of the pending graph, in the order of the program: tensors made from the parameter before keep
    /// what they read, those made from it later read `value`. It is written once, however often the step recomputes,
    /// and only if no guard stops the step. No gradient flows through it. A parameter that requires gradients is
    /// written under [`no_grad`](crate::no_grad), as in PyTorch.
    ///
    /// ```
    /// use highwater::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let engine = Engine::builder().memory(128 << 20).build()?;
    /// let w = Parameter::new(&engine, [2], |w| w.copy_from_slice(&[1.0, 2.0]))?;
    /// w.square()?.sum()?.backward()?;
    /// // One step of gradient descent by hand.
    /// let grad = w.grad().expect("backward() left one");
    /// no_grad(|| w.add_(&grad, -0.1))?;
    /// w.zero_grad();
    /// assert_eq!(w.to_vec::<f32>()?, [0.8, 1.6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Op`] for another shape; [`crate::Error::Usage`] for a parameter that requires gradients outside
    /// `no_grad`; [`crate::Error::OtherEngine`]; [`crate::Error::Expired`]; what stops an evaluation, where very many
    /// writes are pending.
    #[track_caller]
    pub fn assign(&self, value: &Tensor) -> Result<()> {
        self.write(Arc::new(Assign), "assign", value, Location::caller())
    }

    /// Another name for [`Parameter::assign`], that of PyTorch.
    ///
    /// # Errors
    /// As [`Parameter::assign`].
    #[track_caller]
    pub fn copy_(&self, value: &Tensor) -> Result<()> {
        self.write(Arc::new(Assign), "copy_", value, Location::caller())
    }

    /// Adds `alpha` times `value`, as `parameter.add_(value, alpha=alpha)`. Else as [`Parameter::assign`].
    ///
    /// # Errors
    /// As [`Parameter::assign`].
    #[track_caller]
    pub fn add_(&self, value: &Tensor, alpha: f64) -> Result<()> {
        let location = Location::caller();
        self.check_writable("add_", location)?;
        let scaled = match alpha {
            1.0 => value.clone(),
            _ => Tensor::apply_one(MulScalar { value: alpha }, &[value])?,
        };
        self.write(Arc::new(Accumulate), "add_", &scaled, location)
    }

    /// Moves what it holds towards `value`: `parameter += weight (value - parameter)`, as
    /// `parameter.lerp_(value, weight)`: running averages. Else as [`Parameter::assign`].
    ///
    /// # Errors
    /// As [`Parameter::assign`].
    #[track_caller]
    pub fn lerp_(&self, value: &Tensor, weight: f64) -> Result<()> {
        let op = Arc::new(LerpCell { weight });
        self.write(op, "lerp_", value, Location::caller())
    }

    fn check_writable(&self, name: &str, location: Location) -> Result<()> {
        let state = self.engine.lock();
        let cell = state.pending.graph.cell(self.id());
        if is_grad_enabled() && cell.is_some_and(|cell| cell.requires_grad) {
            let cell = cell.map(|cell| cell.name.to_string()).unwrap_or_default();
            let message = format!(
                "{name} of `{cell}`, which requires gradients: no gradient flows through a write, so put it into \
                 no_grad(|| ..)"
            );
            return Err(usage_error(message, location));
        }
        Ok(())
    }

    fn write(&self, op: Arc<dyn Op>, name: &str, value: &Tensor, location: Location) -> Result<()> {
        self.check_writable(name, location)?;
        let engine = self.engine();
        super::check_one_engine(name, &[self, value], location)?;
        let mut state = engine.lock();
        let state = &mut *state;
        let graph = &state.pending.graph;
        if graph.version(self.id()).since(graph.evaluated(self.id())) >= PENDING {
            engine.evaluate_effects(state, None, location)?;
            state.compact(None);
        }
        engine.keep_read_cells(state, |id| id == self.id(), location)?;
        let mut from = value.operand(state)?;
        let site = site(location, Phase::Forward);
        from = engine.in_dtype(state, from, self.dtype(), &site)?;
        from.requires_grad = false;
        if matches!(from.source, Source::Cell(id, _) if id == self.id()) {
            from = engine.own_copy(state, from, location)?;
        }
        let to = self.operand(state)?;
        engine.apply(state, op, &[to, from], &site)?;
        Ok(())
    }
}
