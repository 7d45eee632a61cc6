//! What tensors share with the pending graph: handles, which are pending, concrete, cells, or gone.

use crate::pending::Pending;
use crate::store::Storage;
use crate::store::memory::Storages;
use crate::{Error, Result};
use highwater_graph::Location;
use highwater_graph::{Category, CellId, DType, Layout, Operand, Source, Spec, ValueId};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What clones of a tensor share.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) spec: Spec,
    pub(crate) made_at: Location,
    kept: AtomicBool,
    /// Backward of it guards nothing: see [`Handle::leave_unguarded`].
    unguarded: AtomicBool,
    /// Held by a node of the graph alone: nobody waits for its value.
    of_graph: bool,
    state: Mutex<HandleState>,
}

#[derive(Debug)]
pub(crate) enum HandleState {
    /// In the pending graph, if that is still of this generation.
    Pending { generation: u64, operand: Operand },
    /// Evaluated or given by the user.
    Concrete(Concrete),
    /// A cell: reads see its newest version.
    Cell(Arc<CellHandle>),
    /// Not kept when the step was evaluated there.
    Expired { evaluated_at: Location },
}

#[derive(Debug)]
pub(crate) struct Concrete {
    pub(crate) storage: Arc<Storage>,
    /// How the elements lie there: where a view was copied, otherwise than the handle says.
    layout: Layout,
    /// What the graphs of these generations call it.
    inputs: SmallVec<[(u64, Operand); 1]>,
    /// A leaf that the user wants a gradient for.
    pub(crate) requires_grad: bool,
    /// It had a history, which an evaluation consumed.
    pub(crate) consumed: bool,
    pub(crate) grad: Option<Arc<Handle>>,
}

impl Concrete {
    fn new(storage: Arc<Storage>, layout: Layout, consumed: bool) -> Self {
        Self {
            storage,
            layout,
            inputs: SmallVec::new(),
            requires_grad: false,
            consumed,
            grad: None,
        }
    }

    /// What the graph of a generation calls it.
    fn input(&self, generation: u64) -> Option<&Operand> {
        let mut inputs = self.inputs.iter();
        let found = inputs.find(|(of, _)| *of == generation);
        found.map(|(_, operand)| operand)
    }

    /// Whether a pending graph has it as it is.
    pub(crate) fn is_used(&self) -> bool {
        !self.inputs.is_empty()
    }

    fn spec(&self, dtype: DType) -> Spec {
        let layout = self.layout.clone();
        Spec { dtype, layout }
    }
}

/// A value of the pending graph that gradients reach and no pending node made.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) handle: Weak<Handle>,
    pub(crate) spec: Spec,
    pub(crate) made_at: Location,
    /// It had a history, which an evaluation consumed; otherwise the user wants its gradient.
    pub(crate) consumed: bool,
}

/// Cells whose last handle was dropped, until somebody takes them up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dropped(Arc<Mutex<Vec<CellId>>>);

impl Dropped {
    pub(crate) fn push(&self, id: CellId) {
        self.list().push(id);
    }

    pub(crate) fn take(&self) -> Vec<CellId> {
        std::mem::take(&mut *self.list())
    }

    pub(crate) fn all(&self) -> BTreeSet<CellId> {
        self.list().iter().copied().collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<CellId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Owns a cell: when the last handle goes, so does the cell.
#[derive(Debug)]
pub(crate) struct CellHandle {
    pub(crate) id: CellId,
    pub(crate) dropped: Dropped,
}

impl Drop for CellHandle {
    fn drop(&mut self) {
        self.dropped.push(self.id);
    }
}

impl Handle {
    pub(crate) fn new(spec: Spec, state: HandleState, made_at: Location) -> Arc<Self> {
        Arc::new(Self {
            spec,
            made_at,
            kept: AtomicBool::new(false),
            unguarded: AtomicBool::new(false),
            of_graph: false,
            state: Mutex::new(state),
        })
    }

    /// One that a node of the graph holds, to know an operand by other numbers.
    pub(crate) fn of_graph(
        pending: &mut Pending,
        operand: Operand,
        made_at: Location,
    ) -> Arc<Self> {
        let handle = Arc::new(Self {
            spec: operand.spec.clone(),
            made_at,
            kept: AtomicBool::new(false),
            unguarded: AtomicBool::new(false),
            of_graph: true,
            state: Mutex::new(HandleState::Pending {
                generation: pending.generation,
                operand,
            }),
        });
        pending.register(&handle);
        handle
    }

    pub(crate) fn is_of_graph(&self) -> bool {
        self.of_graph
    }

    /// What the graph that holds it calls it; none of what is a value of its own by now.
    pub(crate) fn in_graph(&self) -> Option<Operand> {
        match &*self.state() {
            HandleState::Pending { operand, .. } => Some(operand.clone()),
            _ => None,
        }
    }

    /// One for a value that is there.
    pub(crate) fn concrete(spec: Spec, storage: Arc<Storage>, made_at: Location) -> Arc<Self> {
        let concrete = Concrete::new(storage, spec.layout.clone(), false);
        Self::new(spec, HandleState::Concrete(concrete), made_at)
    }

    /// One for an operand of the pending graph.
    pub(crate) fn pending(pending: &mut Pending, operand: Operand, made_at: Location) -> Arc<Self> {
        let spec = operand.spec.clone();
        let state = HandleState::Pending {
            generation: pending.generation,
            operand,
        };
        let handle = Self::new(spec, state, made_at);
        pending.register(&handle);
        handle
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HandleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Has the value outlive the step, whatever its size.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Has backward go on where the value is not finite: whoever scaled it looks at the gradients.
    pub(crate) fn leave_unguarded(&self) {
        self.unguarded.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_guarded(&self) -> bool {
        !self.unguarded.load(Ordering::Relaxed)
    }

    /// The gradient that backward left on a value that the user gave.
    pub(crate) fn grad(&self) -> Option<Arc<Self>> {
        match &*self.state() {
            HandleState::Concrete(concrete) => concrete.grad.clone(),
            _ => None,
        }
    }

    pub(crate) fn set_grad(&self, grad: Arc<Self>) {
        if let HandleState::Concrete(concrete) = &mut *self.state() {
            concrete.grad = Some(grad);
        }
    }

    /// The bytes of a value that is there, and how its elements lie in them.
    pub(crate) fn storage(&self) -> Option<(Arc<Storage>, Spec)> {
        match &*self.state() {
            HandleState::Concrete(concrete) => Some((
                Arc::clone(&concrete.storage),
                concrete.spec(self.spec.dtype),
            )),
            _ => None,
        }
    }

    /// Whether the handle waits for the pending graph, if that is of this generation. One that is in use
    /// right now may.
    pub(crate) fn waits(&self, current: u64) -> bool {
        if self.of_graph {
            return false;
        }
        let state = self.state.try_lock();
        state.map_or(true, |state| {
            matches!(&*state, HandleState::Pending { generation, .. } if *generation == current)
        })
    }

    /// The pending value that the handle stands for, if it is of this generation.
    pub(crate) fn pending_value(&self, current: u64) -> Option<ValueId> {
        match &*self.state() {
            HandleState::Pending {
                generation,
                operand,
            } if *generation == current => operand.value(),
            HandleState::Concrete(concrete) => concrete.input(current)?.value(),
            _ => None,
        }
    }

    /// The graph that the handle waits for.
    pub(crate) fn generation(&self) -> Option<u64> {
        match &*self.state() {
            HandleState::Pending { generation, .. } => Some(*generation),
            _ => None,
        }
    }

    /// Follows the graph `from`, which became a part of the graph `to`.
    pub(crate) fn join(&self, (from, to): (u64, u64), follow: &dyn Fn(&mut Operand)) {
        match &mut *self.state() {
            HandleState::Pending {
                generation,
                operand,
            } if *generation == from => {
                *generation = to;
                follow(operand);
            }
            HandleState::Concrete(concrete) => {
                let is_known = concrete.input(to).is_some();
                let inputs = &mut concrete.inputs;
                inputs.retain(|(generation, _)| !(is_known && *generation == from));
                for (generation, operand) in inputs.iter_mut() {
                    if *generation == from {
                        *generation = to;
                        follow(operand);
                    }
                }
            }
            _ => {}
        }
    }

    /// What the handle reads of a cell, if it stands for that alone and is of this generation.
    pub(crate) fn pending_cell(&self, current: u64) -> Option<Operand> {
        match &*self.state() {
            HandleState::Pending {
                generation,
                operand,
            } if *generation == current && operand.value().is_none() => Some(operand.clone()),
            _ => None,
        }
    }

    /// Follows the graph when it renumbers its values.
    pub(crate) fn renumber(&self, current: u64, renumber: &dyn Fn(&mut Operand)) {
        match &mut *self.state() {
            HandleState::Pending {
                generation,
                operand,
            } if *generation == current => renumber(operand),
            HandleState::Concrete(concrete) => {
                let mut inputs = concrete.inputs.iter_mut();
                if let Some((_, operand)) = inputs.find(|(generation, _)| *generation == current) {
                    renumber(operand);
                }
            }
            _ => {}
        }
    }

    /// Where the value is there and no gradient flows back through the handle, that is a value of its own from now
    /// on, though the graph of `current` stays pending. Answers whether it is so.
    pub(crate) fn settle(&self, current: u64, storages: &Storages) -> bool {
        let mut state = self.state();
        let found = match &*state {
            HandleState::Pending {
                generation,
                operand,
            } if *generation == current && !operand.requires_grad => {
                let storage = operand.value().and_then(|id| storages.get(&id));
                storage.map(|storage| (Arc::clone(storage), operand.spec.layout.clone()))
            }
            _ => None,
        };
        let Some((storage, layout)) = found else {
            return false;
        };
        *state = HandleState::Concrete(Concrete::new(storage, layout, false));
        true
    }

    /// The graph of `current` was evaluated: the handle becomes a value of its own, or expires.
    pub(crate) fn resolve(&self, current: u64, storages: &Storages, evaluated_at: Location) {
        let mut state = self.state();
        if let HandleState::Concrete(concrete) = &mut *state {
            concrete
                .inputs
                .retain(|(generation, _)| *generation != current);
        }
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
            Some(storage) => {
                let layout = operand.spec.layout.clone();
                HandleState::Concrete(Concrete::new(storage, layout, operand.requires_grad))
            }
            None => HandleState::Expired { evaluated_at },
        };
    }

    /// What the pending graph calls the tensor.
    pub(crate) fn operand(
        self: &Arc<Self>,
        pending: &mut Pending,
        storages: &mut Storages,
    ) -> Result<Operand> {
        match &mut *self.state() {
            HandleState::Pending {
                generation,
                operand,
            } if *generation == pending.generation => Ok(operand.clone()),
            HandleState::Concrete(concrete) => {
                if let Some(operand) = concrete.input(pending.generation) {
                    return Ok(operand.clone());
                }
                let weak = Arc::downgrade(self);
                let mut spec = concrete.spec(self.spec.dtype);
                let mut whole = spec.clone();
                whole.layout = whole_layout(&concrete.storage, &spec);
                let mut operand = pending.graph.add_input(whole, Category::Input);
                std::mem::swap(&mut operand.spec, &mut spec);
                operand.requires_grad = concrete.requires_grad || concrete.consumed;
                if let Source::Value(id) = operand.source {
                    storages.insert(id, Arc::clone(&concrete.storage));
                    if operand.requires_grad {
                        let leaf = Leaf {
                            handle: weak.clone(),
                            spec: self.spec.clone(),
                            made_at: self.made_at,
                            consumed: !concrete.requires_grad,
                        };
                        pending.leaves.insert(id, leaf);
                    }
                }
                pending.handles.push(weak);
                concrete.inputs.push((pending.generation, operand.clone()));
                Ok(operand)
            }
            HandleState::Cell(cell) => {
                let gone = || Error::Internal("a live handle's cell is gone".into());
                pending.graph.read_cell(cell.id).ok_or_else(gone)
            }
            HandleState::Expired { evaluated_at } => Err(self.expired(*evaluated_at)),
            // The graph it belonged to failed to evaluate.
            HandleState::Pending { .. } => Err(self.expired(self.made_at)),
        }
    }

    fn expired(&self, evaluated_at: Location) -> Error {
        Error::Expired {
            spec: self.spec.to_string(),
            made_at: self.made_at,
            evaluated_at,
        }
    }
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
