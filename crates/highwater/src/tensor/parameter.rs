//! Parameters and buffers: tensors that outlive steps and that updates write.

use crate::engine::Engine;
use crate::engine::lent::{Fill, Use};
use crate::engine::state::State;
use crate::error::usage_error;
use crate::pending::handle::CellHandle;
use crate::store::cells::CellBytes;
use crate::tensor::Tensor;
use crate::{Error, Result};
use highwater_graph::Location;
use highwater_graph::{Category, Cell, CellId, DType, Shape, Source, Spec};
use highwater_memory::spill::SpillError;
use highwater_memory::{FilePart, PartError};
use std::ops::Deref;
use std::sync::Arc;

/// A trained tensor, as `torch.nn.Parameter`. Clones are the same parameter, so a weight is tied by
/// cloning it. Used wherever a tensor is; reads see the newest version.
#[derive(Clone)]
pub struct Parameter {
    tensor: Tensor,
    cell: Arc<CellHandle>,
}

impl Deref for Parameter {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl Parameter {
    /// A tensor that is held in any element type and not trained: weights of a frozen model in `BF16` or
    /// `F16` take half the memory, half the disk and half of what is moved. `fill` gets its bytes, row
    /// after row. What computes in `F32` reads it through [`Tensor::to_dtype`], a node like others: its
    /// result is there for as long as the plan wants.
    ///
    /// # Errors
    /// [`Error::State`] if there is no room.
    #[track_caller]
    pub fn frozen(
        engine: &Engine,
        dtype: DType,
        shape: impl Into<Shape>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Self> {
        let category = (Category::Parameter, false);
        let spec = Self::spec(dtype, &shape.into(), Location::caller())?;
        let fill: Fill<'_> = &mut once(fill);
        Self::of_spec(engine, "parameter", spec, category, Some(fill))
    }

    /// `F32`s that `init` fills: parameters, running statistics.
    #[track_caller]
    pub(crate) fn cell(
        engine: &Engine,
        name: &str,
        shape: impl Into<Shape>,
        category: Category,
        requires_grad: bool,
        init: impl FnOnce(&mut [f32]),
    ) -> Result<Self> {
        let spec = Self::spec(DType::F32, &shape.into(), Location::caller())?;
        let fill: Fill<'_> = &mut once(|bytes| init(bytemuck::cast_slice_mut(bytes)));
        Self::of_spec(engine, name, spec, (category, requires_grad), Some(fill))
    }

    /// Zeros that an optimizer keeps beside a parameter.
    #[track_caller]
    pub(crate) fn optimizer_state(
        engine: &Engine,
        name: &str,
        dtype: DType,
        shape: Shape,
    ) -> Result<Self> {
        let spec = Spec::contiguous(dtype, shape);
        Self::of_spec(engine, name, spec, (Category::OptimizerState, false), None)
    }

    pub(crate) fn spec(dtype: DType, shape: &Shape, location: Location) -> Result<Spec> {
        let absurd = || usage_error(format!("{shape} is no shape for a tensor"), location);
        Ok(Spec::contiguous(
            dtype,
            Shape::checked(shape).ok_or_else(absurd)?,
        ))
    }

    #[track_caller]
    pub(crate) fn of_spec(
        engine: &Engine,
        name: &str,
        spec: Spec,
        (category, requires_grad): (Category, bool),
        fill: Option<Fill<'_>>,
    ) -> Result<Self> {
        let location = Location::caller();
        let id = engine.add_cell(name, spec.clone(), category, requires_grad, fill)?;
        let dropped = engine.0.dropped_cells.clone();
        let cell = Arc::new(CellHandle { id, dropped });
        Ok(Self {
            tensor: Tensor::of_cell(engine, Arc::clone(&cell), spec, location),
            cell,
        })
    }

    pub(crate) fn id(&self) -> CellId {
        self.cell.id
    }

    /// What tells it from all other parameters that are held.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.cell).addr()
    }

    /// Whether both are the same parameter.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }

    /// The name that messages call it by.
    pub fn name(&self) -> String {
        let state = self.engine.lock();
        state
            .pending
            .graph
            .cell(self.id())
            .map_or_else(String::new, |cell| cell.name.to_string())
    }

    /// Names it for messages. [`crate::nn::Module::name_parameters`] names a whole module.
    pub fn set_name(&self, name: &str) {
        if let Some(cell) = self.engine.lock().pending.graph.cell_mut(self.id()) {
            cell.name = name.into();
        }
    }

    /// Freezes or unfreezes it: a frozen parameter gets no gradient.
    pub fn set_requires_grad(&self, requires_grad: bool) {
        if let Some(cell) = self.engine.lock().pending.graph.cell_mut(self.id()) {
            cell.requires_grad = requires_grad;
        }
    }

    /// The gradient that `backward()` left; `None` before it and after `step()`.
    #[track_caller]
    pub fn grad(&self) -> Option<Tensor> {
        let location = Location::caller();
        let mut state = self.engine.lock();
        let cell = state.memory.grads.get(&self.id()).copied();
        let operand = match cell {
            Some(cell) => state.pending.graph.read_cell(cell),
            None => state.pending.grads.get(&self.id()).cloned(),
        }?;
        Some(Tensor::pending(&self.engine, &mut state, operand, location))
    }

    /// Reads the bytes (row-major, little-endian on every supported machine) without copying them.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if they may be half an update; [`Error::Usage`] while an update is
    /// pending.
    #[track_caller]
    pub fn with_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let mut state = self.engine.lock();
        if let Some(why) = &state.poisoned {
            return Err(Error::Poisoned(why.clone()));
        }
        let cell = state.pending.graph.cell(self.id());
        if cell.is_some_and(|cell| cell.evaluated < cell.version) {
            let message = "an update of this parameter is pending; step() evaluates it";
            return Err(usage_error(message, Location::caller()));
        }
        let lent = self
            .engine
            .lend(&mut state, self.id(), Use::Read, Location::caller())?;
        drop(state);
        lent.read(read)
    }

    /// Refuses to write while something pending reads or writes the parameter.
    #[track_caller]
    pub(crate) fn check_idle(&self, state: &mut State) -> Result<()> {
        let reads = |node: &highwater_graph::Node| {
            let cell = |source| matches!(source, Source::Cell(id, _) if id == self.id());
            node.inputs.iter().any(|input| cell(input.source))
        };
        if state.pending.graph.nodes().iter().any(reads) {
            // What nobody holds any more does not count.
            state.compact(None);
        }
        if state.pending.graph.nodes().iter().any(reads) {
            let message = "the parameter is used by what is pending: step() or highwater::eval() first, or drop \
                           the tensors made from it";
            return Err(usage_error(message, Location::caller()));
        }
        Ok(())
    }

    /// Overwrites the bytes: loading state.
    ///
    /// # Errors
    /// [`Error::Usage`] while something pending reads or writes the parameter.
    #[track_caller]
    pub fn with_bytes_mut<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let mut state = self.engine.lock();
        self.check_idle(&mut state)?;
        let lent = self
            .engine
            .lend(&mut state, self.id(), Use::Write, Location::caller())?;
        drop(state);
        lent.write(write)
    }

    /// Overwrites the bytes with those of a part of a file, elements little-endian. Where the engine was given
    /// [`Builder::files`](crate::Builder::files), a parameter that is not trained is that part from then on: where
    /// memory is short it is dropped, and read again when it is needed. Nobody may write to the file as long as the
    /// parameter is there: what was read first is known by its hash, and anything else is an error. Writing to the
    /// parameter, which leaves the file as it is, ends that; so does training it.
    ///
    /// # Errors
    /// [`Error::Usage`] for a part of another length, or while something pending uses the parameter;
    /// [`Error::Files`] where the file cannot be read: what the parameter holds means nothing then. Later reads of
    /// the file that fail, or find something else, are an [`Error::Disk`].
    #[track_caller]
    pub fn read_from(&self, part: FilePart) -> Result<()> {
        let (engine, id, location) = (self.engine(), self.id(), Location::caller());
        // Gone last, since it locks the engine then.
        let lent;
        let mut state = engine.lock();
        self.check_idle(&mut state)?;
        let bytes = state.memory.cells.get(id).map_or(0, CellBytes::bytes);
        if part.bytes() != bytes {
            drop(state);
            let (name, found) = (self.name(), part.bytes());
            let message = format!("{found} bytes of a file for {name}, which has {bytes}");
            return Err(usage_error(message, location));
        }
        let cell = state.pending.graph.cell(id);
        let stays = |cell: &Cell| cell.category == Category::Parameter && !cell.requires_grad;
        let stays = cell.is_some_and(stays);
        lent = engine.lend(&mut state, id, Use::Write, location)?;
        if engine.0.tiers.files && stays && engine.is_movable(bytes) {
            return engine.attach(&mut state, id, part).map_err(of_file);
        }
        drop(state);
        let dry = engine.0.dry;
        let read = lent.write(|own| if dry { Ok(()) } else { part.read(own) })?;
        read.map_err(|source| {
            of_file(Error::Disk {
                what: self.name(),
                source: SpillError::File(source),
            })
        })
    }

    /// Overwrites the values in place: loading state.
    ///
    /// # Errors
    /// As [`Parameter::with_bytes_mut`]; [`Error::Usage`] if it does not hold `f32`.
    #[track_caller]
    pub fn with_values_mut<R>(&self, write: impl FnOnce(&mut [f32]) -> R) -> Result<R> {
        if self.dtype() != DType::F32 {
            return Err(self.not_floats(Location::caller()));
        }
        self.with_bytes_mut(|bytes| write(bytemuck::cast_slice_mut(bytes)))
    }

    /// What is wrong with calling for the floats of something else.
    pub(crate) fn not_floats(&self, location: Location) -> Error {
        let message = format!(
            "{} holds {}, not f32: with_bytes_mut() writes its bytes",
            self.name(),
            self.dtype()
        );
        usage_error(message, location)
    }
}

/// The error of reading a file first, which is one of the file.
fn of_file(error: Error) -> Error {
    match error {
        Error::Disk {
            source: SpillError::File(PartError::Files(error)),
            ..
        } => Error::Files(error),
        other => other,
    }
}

/// What is called at most once, as something that could be called again.
fn once(fill: impl FnOnce(&mut [u8])) -> impl FnMut(&mut [u8]) {
    let mut fill = Some(fill);
    move |bytes| {
        if let Some(fill) = fill.take() {
            fill(bytes);
        }
    }
}
