//! Buffers: state that the forward part writes and that no optimizer trains.

use super::Tensor;
use super::parameter::Parameter;
use crate::Result;
use crate::pending::context::site;
use highwater_graph::Location;
use highwater_graph::{Category, Op, Phase, Shape, Source};
use highwater_ops::{Assign, LerpCell};
use std::ops::Deref;
use std::sync::Arc;

/// How many writes of one buffer may be pending: who never trains still reads bounded graphs.
const PENDING: u32 = 64;

/// A tensor that belongs to a module and is not trained, as `register_buffer` makes in PyTorch:
/// running statistics, caches. Clones are the same buffer. Used wherever a tensor is; reads see the
/// newest version, and no gradient flows to it.
#[derive(Debug, Clone)]
pub struct Buffer(Parameter);

impl Deref for Buffer {
    type Target = Parameter;
    fn deref(&self) -> &Parameter {
        &self.0
    }
}

impl Buffer {
    /// A buffer of `F32`s, filled by `init`.
    ///
    /// # Errors
    /// [`crate::Error::State`] if there is no room; [`crate::Error::Usage`] for a shape that no memory
    /// could hold.
    #[track_caller]
    pub fn new(
        engine: &crate::Engine,
        shape: impl Into<Shape>,
        init: impl FnOnce(&mut [f32]),
    ) -> Result<Self> {
        let category = Category::Buffer;
        let cell = Parameter::cell(engine, "buffer", shape, category, false, init)?;
        Ok(Self(cell))
    }

    /// Replaces what it holds by `value`, an `F32` tensor of its shape, as `buffer.copy_(value)`.
    ///
    /// Part of the pending graph: tensors made from the buffer before keep what they read, those made
    /// from it later read `value`. It is written once, however often the step recomputes, and only if
    /// no guard stops the step: a loss that is not finite leaves running statistics as they were. No
    /// gradient flows through it.
    ///
    /// # Errors
    /// [`crate::Error::Op`] for another shape or dtype; [`crate::Error::OtherEngine`];
    /// [`crate::Error::Expired`]; what stops an evaluation, where very many writes are pending.
    #[track_caller]
    pub fn assign(&self, value: &Tensor) -> Result<()> {
        self.write(Arc::new(Assign), "assign", value, Location::caller())
    }

    /// Moves what it holds towards `value`: `buffer += weight (value - buffer)`, as
    /// `buffer.lerp_(value, weight)`: running averages. Else as [`Buffer::assign`].
    ///
    /// # Errors
    /// As [`Buffer::assign`].
    #[track_caller]
    pub fn lerp_(&self, value: &Tensor, weight: f64) -> Result<()> {
        let op = Arc::new(LerpCell { weight });
        self.write(op, "lerp_", value, Location::caller())
    }

    fn write(&self, op: Arc<dyn Op>, name: &str, value: &Tensor, location: Location) -> Result<()> {
        let engine = self.engine();
        super::check_one_engine(name, &[self, value], location)?;
        let mut state = engine.lock();
        let state = &mut *state;
        let cell = state.pending.graph.cell(self.id());
        if cell.is_some_and(|cell| cell.version.since(cell.evaluated) >= PENDING) {
            engine.evaluate_effects(state, None, location)?;
            state.compact(None);
        }
        engine.keep_read_cells(state, |id| id == self.id(), location)?;
        let to = self.operand(state)?;
        let mut from = value.operand(state)?;
        from.requires_grad = false;
        if matches!(from.source, Source::Cell(id, _) if id == self.id()) {
            from = engine.own_copy(state, from, location)?;
        }
        engine.apply(state, op, &[to, from], &site(location, Phase::Forward))?;
        Ok(())
    }

    /// The cell behind it, by which optimizers' and modules' state is saved and loaded.
    pub(crate) fn as_parameter(&self) -> &Parameter {
        &self.0
    }
}
