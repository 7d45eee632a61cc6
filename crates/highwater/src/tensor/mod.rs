//! Tensors: handles on values that are pending, kept, cells, or gone.

pub(crate) mod context;
mod ops;
pub(crate) mod parameter;

use crate::engine::Engine;
use crate::engine::state::State;
use crate::error::usage_error;
use crate::store::Storage;
use crate::tensor::context::site;
use crate::{Error, Result, store::raw};
use highwater_graph::{
    Category, CellId, DType, Layout, Op, Operand, Phase, RANK_MAX, Shape, Source, Spec, ValueId,
};
use highwater_ops::Element;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A tensor: static shape and dtype, and values that exist when they are asked for.
///
/// Operations build a graph; nothing is computed until an optimizer's `step()`, `eval(..)`, or a
/// read such as [`Tensor::item`]. Clones are the same tensor. See the crate's documentation for what
/// outlives a step.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub(crate) engine: Engine,
    pub(crate) handle: Arc<Handle>,
}

/// What clones of a tensor share.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) spec: Spec,
    made_at: &'static Location<'static>,
    kept: AtomicBool,
    state: Mutex<HandleState>,
}

#[derive(Debug)]
pub(crate) enum HandleState {
    /// In the pending graph, if that is still of this generation.
    Pending { generation: u64, operand: Operand },
    /// Evaluated or given by the user.
    Held(Held),
    /// A cell: reads see its newest version.
    Cell(Arc<CellHandle>),
    /// Not kept when the step was evaluated there.
    Expired {
        evaluated_at: &'static Location<'static>,
    },
}

#[derive(Debug)]
pub(crate) struct Held {
    storage: Arc<Storage>,
    /// What the graph of that generation calls it.
    input: Option<(u64, Operand)>,
    /// A leaf that the user wants a gradient for.
    requires_grad: bool,
    /// It had a history, which an evaluation consumed.
    consumed: bool,
    grad: Option<Tensor>,
}

/// A value of the pending graph that gradients reach and no pending node made.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) handle: Weak<Handle>,
    pub(crate) spec: Spec,
    pub(crate) made_at: &'static Location<'static>,
    /// It had a history, which an evaluation consumed; otherwise the user wants its gradient.
    pub(crate) consumed: bool,
}

/// Owns a cell: when the last handle goes, so does the cell.
#[derive(Debug)]
pub(crate) struct CellHandle {
    pub(crate) engine: Engine,
    pub(crate) id: CellId,
}

impl Drop for CellHandle {
    fn drop(&mut self) {
        self.engine.drop_cell(self.id);
    }
}

impl Handle {
    pub(crate) fn state(&self) -> MutexGuard<'_, HandleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// The pending value that the handle stands for, if it is of this generation.
    pub(crate) fn pending_value(&self, current: u64) -> Option<ValueId> {
        match &*self.state() {
            HandleState::Pending {
                generation,
                operand,
            } if *generation == current => match operand.source {
                Source::Value(id) => Some(id),
                Source::Cell(..) => None,
            },
            HandleState::Held(Held {
                input: Some((generation, operand)),
                ..
            }) if *generation == current => match operand.source {
                Source::Value(id) => Some(id),
                Source::Cell(..) => None,
            },
            _ => None,
        }
    }

    /// Follows the graph when it renumbers its values.
    pub(crate) fn renumber(&self, current: u64, renumber: &dyn Fn(&mut Operand)) {
        match &mut *self.state() {
            HandleState::Pending {
                generation,
                operand,
            }
            | HandleState::Held(Held {
                input: Some((generation, operand)),
                ..
            }) if *generation == current => {
                renumber(operand);
            }
            _ => {}
        }
    }

    /// The graph of `current` was evaluated: the handle becomes a value of its own, or expires.
    pub(crate) fn settle(
        &self,
        current: u64,
        storages: &BTreeMap<ValueId, Arc<Storage>>,
        evaluated_at: &'static Location<'static>,
    ) {
        let mut state = self.state();
        let HandleState::Pending {
            generation,
            operand,
        } = &*state
        else {
            return;
        };
        if *generation != current {
            return;
        }
        let storage = match operand.source {
            Source::Value(id) => storages.get(&id).cloned(),
            Source::Cell(..) => None,
        };
        *state = match storage {
            Some(storage) => HandleState::Held(Held {
                storage,
                input: None,
                requires_grad: false,
                consumed: operand.requires_grad,
                grad: None,
            }),
            None => HandleState::Expired { evaluated_at },
        };
    }
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
    fn filled(
        engine: &Engine,
        spec: Spec,
        location: &'static Location<'static>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Self> {
        let storage = engine.alloc(spec.bytes(), Category::Input, "an input")?;
        if !engine.0.dry {
            fill(raw::bytes_mut(&storage));
        }
        Ok(Self::held(engine, spec, storage, location))
    }

    fn held(
        engine: &Engine,
        spec: Spec,
        storage: Arc<Storage>,
        made_at: &'static Location<'static>,
    ) -> Self {
        let held = Held {
            storage,
            input: None,
            requires_grad: false,
            consumed: false,
            grad: None,
        };
        Self::new(engine, spec, HandleState::Held(held), made_at)
    }

    fn new(
        engine: &Engine,
        spec: Spec,
        state: HandleState,
        made_at: &'static Location<'static>,
    ) -> Self {
        let kept = AtomicBool::new(false);
        let handle = Arc::new(Handle {
            spec,
            made_at,
            kept,
            state: Mutex::new(state),
        });
        Self {
            engine: engine.clone(),
            handle,
        }
    }

    /// A tensor that reads a cell.
    pub(crate) fn of_cell(
        cell: Arc<CellHandle>,
        spec: Spec,
        made_at: &'static Location<'static>,
    ) -> Self {
        let engine = cell.engine.clone();
        Self::new(&engine, spec, HandleState::Cell(cell), made_at)
    }

    /// A tensor for an operand of the pending graph.
    pub(crate) fn pending(
        engine: &Engine,
        state: &mut State,
        operand: Operand,
        made_at: &'static Location<'static>,
    ) -> Self {
        let spec = operand.spec.clone();
        let pending = HandleState::Pending {
            generation: state.generation,
            operand,
        };
        let tensor = Self::new(engine, spec, pending, made_at);
        state.register(&tensor.handle);
        tensor
    }

    /// Applies an operation to tensors of one engine: checks shapes, computes nothing. What every
    /// method of `Tensor` calls, and what operations of other crates call.
    ///
    /// # Errors
    /// What the operation refuses; an expired input.
    #[track_caller]
    pub fn apply(op: impl Op, inputs: &[&Self]) -> Result<SmallVec<[Self; 2]>> {
        Self::apply_at(Arc::new(op), inputs, Location::caller())
    }

    /// As [`Tensor::apply`] for an operation of one output.
    ///
    /// # Errors
    /// As [`Tensor::apply`].
    #[track_caller]
    pub fn apply_one(op: impl Op, inputs: &[&Self]) -> Result<Self> {
        let location = Location::caller();
        let outputs = Self::apply_at(Arc::new(op), inputs, location)?;
        let none = || usage_error("the operation has no output", location);
        outputs.into_iter().next().ok_or_else(none)
    }

    fn apply_at(
        op: Arc<dyn Op>,
        inputs: &[&Self],
        location: &'static Location<'static>,
    ) -> Result<SmallVec<[Self; 2]>> {
        let Some(first) = inputs.first() else {
            return Err(usage_error(
                "an operation needs at least one input",
                location,
            ));
        };
        if inputs.iter().any(|input| !input.engine.same(&first.engine)) {
            return Err(Error::OtherEngine {
                location: location.to_string(),
            });
        }
        let engine = &first.engine;
        let mut state = engine.lock();
        let operands: Result<SmallVec<[Operand; 4]>> = inputs
            .iter()
            .map(|input| input.operand(&mut state))
            .collect();
        let outputs = engine.apply(&mut state, op, &operands?, &site(location, Phase::Forward))?;
        let pending = |operand| Self::pending(engine, &mut state, operand, location);
        Ok(outputs.into_iter().map(pending).collect())
    }

    /// Sees the same elements through another layout.
    pub(crate) fn view(
        &self,
        location: &'static Location<'static>,
        layout: impl FnOnce(&Layout) -> Option<Layout>,
        refused: impl FnOnce() -> String,
    ) -> Result<Self> {
        let mut state = self.engine.lock();
        let operand = self.operand(&mut state)?;
        let Some(layout) = layout(&operand.spec.layout) else {
            return Err(usage_error(refused(), location));
        };
        Ok(Self::pending(
            &self.engine,
            &mut state,
            operand.with_layout(layout),
            location,
        ))
    }

    /// What the pending graph calls the tensor.
    pub(crate) fn operand(&self, state: &mut State) -> Result<Operand> {
        let handle = &*self.handle;
        match &mut *handle.state() {
            HandleState::Pending {
                generation,
                operand,
            } if *generation == state.generation => Ok(operand.clone()),
            HandleState::Held(held) => {
                if let Some((generation, operand)) = &held.input
                    && *generation == state.generation
                {
                    return Ok(operand.clone());
                }
                let weak = Arc::downgrade(&self.handle);
                let mut spec = handle.spec.clone();
                let mut whole = spec.clone();
                whole.layout = whole_layout(&held.storage, &spec);
                let mut operand = state.graph.add_input(whole, Category::Input);
                std::mem::swap(&mut operand.spec, &mut spec);
                operand.requires_grad = held.requires_grad || held.consumed;
                if let Source::Value(id) = operand.source {
                    state.storages.insert(id, Arc::clone(&held.storage));
                    if operand.requires_grad {
                        let leaf = Leaf {
                            handle: weak.clone(),
                            spec: handle.spec.clone(),
                            made_at: handle.made_at,
                            consumed: !held.requires_grad,
                        };
                        state.leaves.insert(id, leaf);
                    }
                }
                state.handles.push(weak);
                held.input = Some((state.generation, operand.clone()));
                Ok(operand)
            }
            HandleState::Cell(cell) => {
                let gone = || Error::Internal("a live handle's cell is gone".into());
                state.graph.read_cell(cell.id).ok_or_else(gone)
            }
            HandleState::Expired { evaluated_at } => Err(self.expired(evaluated_at)),
            // The graph it belonged to failed to evaluate.
            HandleState::Pending { .. } => Err(self.expired(handle.made_at)),
        }
    }

    fn expired(&self, evaluated_at: &Location<'_>) -> Error {
        Error::Expired {
            spec: self.handle.spec.to_string(),
            made_at: self.handle.made_at.to_string(),
            evaluated_at: evaluated_at.to_string(),
        }
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
        self.handle.kept.store(true, Ordering::Relaxed);
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

    /// Asks for a gradient of a tensor that the user gave, as `requires_grad_()`. Answers itself.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is the result of an operation, or not of a float dtype.
    #[track_caller]
    pub fn requires_grad_(self) -> Result<Self> {
        let location = Location::caller();
        let mut state = self.engine.lock();
        let refused = match &mut *self.handle.state() {
            HandleState::Held(held) if self.dtype().is_float() => {
                let used = held
                    .input
                    .as_ref()
                    .is_some_and(|(used, _)| *used == state.generation);
                held.requires_grad = true;
                used.then_some("requires_grad_() comes before the tensor's first use")
            }
            HandleState::Cell(cell) => {
                if let Some(cell) = state.graph.cell_mut(cell.id) {
                    cell.requires_grad = true;
                }
                None
            }
            _ => Some("requires_grad_() is for float tensors that no operation made"),
        };
        drop(state);
        match refused {
            Some(message) => Err(usage_error(message, location)),
            None => Ok(self),
        }
    }

    /// The gradient that backward left on a tensor that the user gave.
    pub fn grad(&self) -> Option<Self> {
        match &*self.handle.state() {
            HandleState::Held(held) => held.grad.clone(),
            _ => None,
        }
    }

    pub(crate) fn set_grad(&self, grad: Self) {
        if let HandleState::Held(held) = &mut *self.handle.state() {
            held.grad = Some(grad);
        }
    }

    pub(crate) fn from_handle(engine: &Engine, handle: Arc<Handle>) -> Self {
        Self {
            engine: engine.clone(),
            handle,
        }
    }

    /// Computes the tensor now and reads it, row-major. Backward can still be called afterwards.
    ///
    /// # Errors
    /// [`Error::Expired`]; [`Error::Usage`] for another element type; whatever stops the evaluation.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let location = Location::caller();
        if !T::is(self.dtype()) {
            let message = format!(
                "the tensor is {}, not {}",
                self.dtype(),
                std::any::type_name::<T>()
            );
            return Err(usage_error(message, location));
        }
        let mut state = self.engine.lock();
        let operand = self.evaluate(&mut state, location)?;
        let storage = match operand.source {
            Source::Value(id) => {
                let gone = || Error::Internal("evaluated, but not there".into());
                state.storages.get(&id).cloned().ok_or_else(gone)?
            }
            Source::Cell(id, _) => {
                if state.borrowed.get(&id).is_some_and(|&count| count < 0) {
                    let message = "a closure is writing the bytes of this parameter";
                    return Err(usage_error(message, location));
                }
                self.engine.copy_of(&mut state, id)?
            }
        };
        let view = raw::view(&storage, &operand.spec);
        let elements = view
            .storage::<T>()
            .map_err(|e| usage_error(e.to_string(), location))?;
        Ok(operand
            .spec
            .layout
            .positions()
            .map(|position| elements[position])
            .collect())
    }

    /// Computes the only element of the tensor now and reads it, as `loss.item()`.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`]; [`Error::Usage`] if there is not exactly one `f32`.
    #[track_caller]
    pub fn item(&self) -> Result<f32> {
        let location = Location::caller();
        if self.shape().numel() != 1 {
            let message = format!("item() is for one element, the shape is {}", self.shape());
            return Err(usage_error(message, location));
        }
        Ok(self.to_vec::<f32>()?[0])
    }

    /// Sees to it that the value is in storage of its own.
    fn evaluate(&self, state: &mut State, location: &'static Location<'static>) -> Result<Operand> {
        if let Some(why) = &state.poisoned {
            return Err(Error::Poisoned(why.clone()));
        }
        let operand = self.operand(state)?;
        match operand.source {
            Source::Cell(id, version) => {
                let cell = state.graph.cell(id);
                if cell.is_some_and(|cell| cell.evaluated < version) {
                    self.engine.evaluate_effects(state, None, location)?;
                    state.compact(None);
                }
                self.operand(state)
            }
            Source::Value(id) => {
                let targets = BTreeSet::from([id]);
                self.engine
                    .evaluate_some(state, &targets, Some(&operand), location)?;
                self.operand(state)
            }
        }
    }

    /// Emits the backward pass of the tensor, whose gradient is one everywhere. Each parameter it
    /// reaches gets a gradient, or has it added to the one it has; nothing is computed yet, but
    /// gradients that are pending from an earlier `backward()` are computed first.
    ///
    /// # Errors
    /// [`Error::Usage`] if nothing requires a gradient or the tensor is not a scalar;
    /// [`Error::HistoryConsumed`]; an operation without a gradient.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        crate::autograd::backward::backward(self, Location::caller())
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
        let mut state = tensor.engine.lock();
        tensor.handle.kept.store(true, Ordering::Relaxed);
        tensor.evaluate(&mut state, location)?;
    }
    Ok(())
}

/// The storage of a held tensor as the graph's value: the tensor's own layout if that is all of it,
/// else one flat row.
fn whole_layout(storage: &Storage, spec: &Spec) -> Layout {
    let elements = storage.bytes() / spec.dtype.element_bytes().unwrap_or(1);
    if spec.layout.covers(elements as usize) {
        spec.layout.clone()
    } else {
        Layout::contiguous([elements as usize])
    }
}

fn dtype_of<T: Element>() -> DType {
    const ALL: [DType; 7] = [
        DType::F32,
        DType::F64,
        DType::BF16,
        DType::F16,
        DType::I64,
        DType::U32,
        DType::U8,
    ];
    ALL.into_iter()
        .find(|&dtype| T::is(dtype))
        .unwrap_or(DType::U8)
}
