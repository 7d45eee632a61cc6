//! Tensors: handles on values that are pending, kept, cells, or gone.

mod autocast;
pub(crate) mod buffer;
pub(crate) mod checkpoint;
pub(crate) mod chunked;
mod create;
mod debug;
pub(crate) mod dim;
mod display;
mod einsum;
pub(crate) mod function;
pub(crate) mod grad;
pub(crate) mod gradcheck;
pub(crate) mod hooks;
mod init;
mod operations;
mod operators;
pub(crate) mod parameter;
mod promotion;
mod read;
mod select;
pub(crate) mod tier;
mod views;
mod writes;

use crate::engine::Engine;
use crate::engine::backward::backward;
use crate::engine::state::State;
use crate::error::usage_error;
use crate::pending::context::{is_grad_enabled, site};
use crate::pending::handle::{CellHandle, Handle, HandleState};
use crate::{Error, Result};
use highwater_graph::Location;
use highwater_graph::{DType, Layout, Op, Operand, Phase, RANK_MAX, Shape, Spec};
use highwater_ops::Element;
use smallvec::SmallVec;
use std::sync::Arc;

/// A tensor: static shape and dtype, and values that exist when they are asked for.
///
/// Operations build a graph; nothing is computed until an optimizer's `step()`, `eval(..)`, or a
/// read such as [`Tensor::item`]. Clones are the same tensor. See the crate's documentation for what
/// outlives a step.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) engine: Engine,
    pub(crate) handle: Arc<Handle>,
}

impl Tensor {
    /// A tensor of elements, copied. Category: input.
    ///
    /// # Errors
    /// If the count is not the shape's; [`Error::State`] if there is no room.
    #[track_caller]
    pub fn from_slice<T: Element>(
        engine: &Engine,
        data: &[T],
        shape: impl Into<Shape>,
    ) -> Result<Self> {
        let location = Location::caller();
        let shape = shape.into();
        let checked = Shape::checked(&shape).filter(|shape| shape.numel() == data.len());
        let Some(shape) = checked else {
            let message = match shape.len() {
                ..=RANK_MAX => format!("{} elements do not make the shape {shape}", data.len()),
                rank => format!("a tensor has at most {RANK_MAX} dimensions, not {rank}"),
            };
            return Err(usage_error(message, location));
        };
        let spec = Spec::contiguous(dtype_of::<T>(), shape);
        let bytes = bytemuck::cast_slice(data);
        Self::filled(engine, spec, location, |own| own.copy_from_slice(bytes))
    }

    /// Standard normal deviates from the engine's random numbers, as `torch.randn`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a shape that no memory could hold; [`Error::State`] if there is no room.
    #[track_caller]
    pub fn randn(engine: &Engine, shape: impl Into<Shape>) -> Result<Self> {
        let location = Location::caller();
        let shape = shape.into();
        let too_large = || usage_error(format!("no memory could hold the shape {shape}"), location);
        let spec = Spec::contiguous(DType::F32, Shape::checked(&shape).ok_or_else(too_large)?);
        let (seed, offset) = engine.lock().next_random();
        Self::filled(engine, spec, location, |own| {
            highwater_ops::philox::fill_normal(seed, offset, bytemuck::cast_slice_mut(own));
        })
    }

    /// An input whose bytes are filled where they lie; not in a dry run.
    pub(crate) fn filled(
        engine: &Engine,
        spec: Spec,
        location: Location,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Self> {
        let mut storage = engine.alloc(spec.bytes(), "an input")?.of_value();
        if !engine.0.dry {
            fill(storage.bytes_mut());
        }
        Ok(Self::from_handle(
            engine,
            Handle::concrete(spec, Arc::new(storage), location),
        ))
    }

    /// A tensor that reads a cell.
    pub(crate) fn of_cell(
        engine: &Engine,
        cell: Arc<CellHandle>,
        spec: Spec,
        made_at: Location,
    ) -> Self {
        let handle = Handle::new(spec, HandleState::Cell(cell), made_at);
        Self::from_handle(engine, handle)
    }

    /// A tensor for an operand of the pending graph.
    pub(crate) fn pending(
        engine: &Engine,
        state: &mut State,
        operand: Operand,
        made_at: Location,
    ) -> Self {
        Self::from_handle(
            engine,
            Handle::pending(&mut state.pending, operand, made_at),
        )
    }

    /// Applies an operation to tensors of one engine: checks shapes, computes nothing. What every
    /// method of `Tensor` calls, and what operations of other crates call.
    ///
    /// # Errors
    /// What the operation refuses; an expired input.
    #[track_caller]
    pub fn apply(op: impl Op, inputs: &[&Self]) -> Result<SmallVec<[Self; 2]>> {
        Self::apply_shared(Arc::new(op), inputs)
    }

    /// As [`Tensor::apply`] for an operation whose type is not known: of a table, of a sample.
    ///
    /// # Errors
    /// As [`Tensor::apply`].
    #[track_caller]
    pub fn apply_shared(op: Arc<dyn Op>, inputs: &[&Self]) -> Result<SmallVec<[Self; 2]>> {
        let location = Location::caller();
        let Some(first) = inputs.first() else {
            let message =
                "an operation without inputs is for Tensor::generate(), which is told the engine";
            return Err(usage_error(message, location));
        };
        Self::apply_at(&first.engine, op, inputs, location)
    }

    /// As [`Tensor::apply`] for an operation of one output.
    ///
    /// # Errors
    /// As [`Tensor::apply`].
    #[track_caller]
    pub fn apply_one(op: impl Op, inputs: &[&Self]) -> Result<Self> {
        let location = Location::caller();
        let outputs = Self::apply(op, inputs)?;
        let none = || usage_error("the operation has no output", location);
        outputs.into_iter().next().ok_or_else(none)
    }

    fn apply_at(
        engine: &Engine,
        op: Arc<dyn Op>,
        inputs: &[&Self],
        location: Location,
    ) -> Result<SmallVec<[Self; 2]>> {
        check_one_engine(op.name(), inputs, location)?;
        let mut state = engine.lock();
        let operands: Result<SmallVec<[Operand; 4]>> = inputs
            .iter()
            .map(|input| input.operand(&mut state))
            .collect();
        let (mut operands, site) = (operands?, site(location, Phase::Forward));
        autocast::cast_inputs(engine, &mut state, &*op, &mut operands, &site)?;
        promotion::promote_inputs(engine, &mut state, &*op, &mut operands, &site)?;
        let outputs = engine.apply(&mut state, op, &operands, &site)?;
        let pending = |operand| Self::pending(engine, &mut state, operand, location);
        Ok(outputs.into_iter().map(pending).collect())
    }

    /// Sees the same elements through another layout.
    pub(crate) fn view(
        &self,
        location: Location,
        layout: impl FnOnce(&Layout) -> Option<Layout>,
        refused: impl FnOnce() -> String,
    ) -> Result<Self> {
        let mut state = self.engine.lock();
        let operand = self.operand(&mut state)?;
        let Some(layout) = layout(&operand.spec.layout) else {
            return Err(usage_error(refused(), location));
        };
        let mut seen = operand.with_layout(layout);
        seen.requires_grad &= is_grad_enabled();
        Ok(Self::pending(&self.engine, &mut state, seen, location))
    }

    /// What the pending graph calls the tensor.
    pub(crate) fn operand(&self, state: &mut State) -> Result<Operand> {
        state.operand(&self.handle)
    }

    /// Extents.
    pub fn shape(&self) -> &Shape {
        self.handle.spec.shape()
    }

    /// Extents as a slice.
    pub fn dims(&self) -> &[usize] {
        self.shape().dims()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.handle.spec.dtype
    }

    /// The engine that the tensor belongs to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Marks the tensor so that its value outlives the step, whatever its size. Answers itself.
    #[must_use]
    pub fn keep(self) -> Self {
        self.handle.keep();
        self
    }

    /// The same values without history: no gradient flows back through the result.
    ///
    /// # Errors
    /// [`Error::Expired`].
    #[track_caller]
    pub fn detach(&self) -> Result<Self> {
        let mut state = self.engine.lock();
        let mut operand = self.operand(&mut state)?;
        operand.requires_grad = false;
        Ok(Self::pending(
            &self.engine,
            &mut state,
            operand,
            Location::caller(),
        ))
    }

    /// Whether gradients flow back through the tensor.
    ///
    /// # Errors
    /// [`Error::Expired`].
    pub fn requires_grad(&self) -> Result<bool> {
        Ok(self.operand(&mut self.engine.lock())?.requires_grad)
    }

    /// Asks for a gradient of a tensor that the user gave, as `requires_grad_()`. Answers itself. The result of an
    /// operation that has no history is computed for that.
    ///
    /// # Errors
    /// [`Error::Usage`] if gradients flow through it already, if it is a view of a parameter or not of a float dtype,
    /// or if it was used already: it is as it was then. What stops the evaluation of a result.
    #[track_caller]
    pub fn requires_grad_(self) -> Result<Self> {
        let location = Location::caller();
        let mut state = self.engine.lock();
        if self.dtype().is_float() && self.is_result_without_history() {
            state = self.engine.once_unlent(state, None, location)?;
            self.settle(&mut state, location)?;
        }
        let refused = match &mut *self.handle.state() {
            HandleState::Concrete(concrete) if self.dtype().is_float() => {
                let used = concrete.is_used();
                // What is refused changes nothing.
                concrete.requires_grad |= !used;
                used.then_some(
                    "requires_grad_() comes before the tensor's first use: call it where the tensor is made",
                )
            }
            HandleState::Cell(cell) if self.dtype().is_float() => {
                if let Some(cell) = state.pending.graph.cell_mut(cell.id) {
                    cell.requires_grad = true;
                }
                None
            }
            _ => Some(
                "requires_grad_() is for float tensors without history: call it on a tensor that Engine::tensor() \
                 gave, or on what detach() returns",
            ),
        };
        drop(state);
        match refused {
            Some(message) => Err(usage_error(message, location)),
            None => Ok(self),
        }
    }

    /// Whether it is to be computed, and no gradient flows through it.
    fn is_result_without_history(&self) -> bool {
        match &*self.handle.state() {
            HandleState::Pending { operand, .. } => {
                operand.value().is_some() && !operand.requires_grad
            }
            _ => false,
        }
    }

    /// The gradient that backward left on a tensor that the user gave.
    pub fn grad(&self) -> Option<Self> {
        let grad = self.handle.grad()?;
        Some(Self::from_handle(&self.engine, grad))
    }

    pub(crate) fn from_handle(engine: &Engine, handle: Arc<Handle>) -> Self {
        Self {
            engine: engine.clone(),
            handle,
        }
    }

    /// Emits the backward pass of the tensor, whose gradient is one everywhere. Each parameter it
    /// reaches gets a gradient, or has it added to the one it has; nothing is computed yet, but
    /// gradients that are pending from an earlier `backward()` are computed first.
    ///
    /// Until the step ends a tensor that is held keeps its history, through which backward may go again: of the losses
    /// of many micro-batches hold [`Tensor::detach`].
    ///
    /// # Errors
    /// [`Error::Usage`] if nothing requires a gradient or the tensor is not a scalar;
    /// [`Error::HistoryConsumed`]; an operation without a gradient.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        backward(&self.engine, &self.handle, None, Location::caller())
    }

    /// As [`Tensor::backward`] for a tensor of any shape, given the gradient of whatever is made of it: the
    /// product of a vector with the Jacobian, as `Tensor.backward(gradient)`.
    ///
    /// # Errors
    /// As [`Tensor::backward`]; [`Error::Usage`] for a gradient of another shape or dtype.
    #[track_caller]
    pub fn backward_with(&self, gradient: &Self) -> Result<()> {
        let location = Location::caller();
        check_one_engine("backward_with()", &[self, gradient], location)?;
        backward(&self.engine, &self.handle, Some(&gradient.handle), location)
    }
}

impl Engine {
    /// A tensor of `f32`s, copied. Category: input.
    ///
    /// # Errors
    /// If the count is not the shape's; [`Error::State`] if there is no room.
    #[track_caller]
    pub fn tensor(&self, data: &[f32], shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_slice(self, data, shape)
    }

    /// A tensor of token ids, labels or other indices, copied. Category: input.
    ///
    /// # Errors
    /// As [`Engine::tensor`].
    #[track_caller]
    pub fn indices(&self, data: &[u32], shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_slice(self, data, shape)
    }
}

/// That tensors that meet in an operation are of one engine.
pub(crate) fn check_one_engine(what: &str, tensors: &[&Tensor], location: Location) -> Result<()> {
    let other = |tensor: &&Tensor| !tensor.engine.same(&tensors[0].engine);
    match tensors.iter().position(other) {
        Some(index) => {
            let spec = &tensors[index].handle.spec;
            let what = format!("{what}: input {index}, {spec}, is of another engine than input 0");
            Err(Error::OtherEngine { what, location })
        }
        None => Ok(()),
    }
}

/// Evaluates tensors together now, as `mx.eval`. They keep their values through the next step.
///
/// # Errors
/// As [`Tensor::to_vec`].
#[track_caller]
pub fn eval<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    let location = Location::caller();
    for tensor in tensors {
        let state = tensor.engine.lock();
        let cell = tensor.cell();
        let mut state = tensor.engine.once_unlent(state, cell, location)?;
        tensor.handle.keep();
        tensor.evaluate(&mut state, location)?;
    }
    Ok(())
}

fn dtype_of<T: Element>() -> DType {
    const ALL: [DType; 8] = [
        DType::F32,
        DType::F64,
        DType::BF16,
        DType::F16,
        DType::I64,
        DType::I16,
        DType::U32,
        DType::U8,
    ];
    ALL.into_iter()
        .find(|&dtype| T::is(dtype))
        .unwrap_or(DType::U8)
}
