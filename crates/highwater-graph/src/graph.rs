//! The pending graph: what the user's code has asked for and nobody has computed yet.

mod check;
mod ids;
mod join;
mod prune;
#[cfg(test)]
mod tests;
mod versions;

pub use ids::{CellId, KernelId, NodeId, ValueId, Version};
pub use join::Joined;

use crate::{
    Backend, BuildMixer, Checkpoint, CheckpointPolicy, Effect, Location, Op, OpError, Spec, Traits,
};
use smallvec::SmallVec;
use std::sync::Arc;
use versions::Versions;

/// Where an operand's elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An output of a node, or an input that the user gave.
    Value(ValueId),
    /// A cell as it is at one version.
    Cell(CellId, Version),
}

/// One input of a node: a view of a value or of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// Where the elements are.
    pub source: Source,
    /// Dtype, and layout in the source's storage.
    pub spec: Spec,
    /// Whether gradients flow back through it.
    pub requires_grad: bool,
}

impl Operand {
    /// The value that it reads, unless that is a cell.
    pub fn value(&self) -> Option<ValueId> {
        match self.source {
            Source::Value(id) => Some(id),
            Source::Cell(..) => None,
        }
    }

    /// Extents.
    pub fn shape(&self) -> &crate::Shape {
        self.spec.shape()
    }

    /// The same elements seen through another layout.
    #[must_use]
    pub fn with_layout(&self, layout: crate::Layout) -> Self {
        let spec = Spec {
            dtype: self.spec.dtype,
            layout,
        };
        Self {
            source: self.source,
            spec,
            requires_grad: self.requires_grad,
        }
    }
}

/// What a value or cell holds, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Trained weights.
    Parameter,
    /// Gradients.
    Gradient,
    /// An optimizer's moments.
    OptimizerState,
    /// Results of forward nodes.
    Activation,
    /// Scratch memory of kernels.
    Workspace,
    /// What the user gave.
    Input,
    /// Other persistent state: running statistics, caches.
    Buffer,
}

impl std::fmt::Display for Category {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Parameter => "parameter",
            Self::Gradient => "gradient",
            Self::OptimizerState => "optimizer state",
            Self::Activation => "activation",
            Self::Workspace => "workspace",
            Self::Input => "input",
            Self::Buffer => "buffer",
        })
    }
}

/// Which part of a step a node belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Made by the user's code.
    Forward,
    /// Made by `backward()`.
    Backward,
    /// Made by an optimizer.
    Update,
}

/// Where a node comes from.
#[derive(Debug, Clone)]
pub struct Site {
    /// Path of the module whose forward made it, such as `h.3.mlp`; empty outside any.
    pub module: Arc<str>,
    /// The caller's source line.
    pub location: Location,
    /// Which part of a step.
    pub phase: Phase,
    /// The `checkpoint(f, x)` it was made in, if any.
    pub checkpoint: Option<Checkpoint>,
    /// False under `no_grad`: outputs never require gradients.
    pub grad_enabled: bool,
}

/// An operation applied once.
#[derive(Debug, Clone)]
pub struct Node {
    /// The operation with its attributes.
    pub op: Arc<dyn Op>,
    /// What it said of itself.
    pub traits: Traits,
    /// The kernel that takes it, if the graph knows what runs its nodes.
    pub kernel: Option<KernelId>,
    /// What it reads.
    pub inputs: Vec<Operand>,
    /// What it fills.
    pub outputs: SmallVec<[ValueId; 2]>,
    /// Cells it writes, with the version before, in the order of [`Traits::writes`].
    pub writes: SmallVec<[(CellId, Version); 4]>,
    /// Where it comes from.
    pub site: Site,
}

impl Node {
    /// Whether it adds to a gradient, or fills one.
    pub fn is_write_of_backward(&self) -> bool {
        self.site.phase != Phase::Forward && !self.writes.is_empty()
    }

    /// Whether it is an optimizer's: what a skipped step leaves out.
    pub fn is_update(&self) -> bool {
        self.site.phase == Phase::Update && !self.writes.is_empty()
    }
}

/// What is known of a value.
#[derive(Debug, Clone)]
pub struct Value {
    /// Dtype and layout of the whole storage, as its producer fills it.
    pub spec: Spec,
    /// Which node fills it, as which of its outputs; `None` for what the user gave.
    pub producer: Option<(NodeId, u32)>,
    /// What it holds.
    pub category: Category,
    /// Whether gradients flow back through it to its producer.
    pub requires_grad: bool,
}

/// What is known of a cell.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Name for messages, such as `h.3.mlp.weight`.
    pub name: Arc<str>,
    /// Dtype and (dense, row-major) layout.
    pub spec: Spec,
    /// What it holds.
    pub category: Category,
    /// Whether backward computes a gradient for it.
    pub requires_grad: bool,
}

/// The cells, which outlive the graphs that read and write them.
#[derive(Debug, Default, Clone)]
pub struct Cells {
    #[expect(clippy::disallowed_types, reason = "its order is never read")]
    all: std::collections::HashMap<CellId, Cell, BuildMixer>,
    made: CellId,
}

/// Nodes and values since the last evaluation, and the cells, which outlive it.
#[derive(Debug, Default, Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    values: Vec<Value>,
    cells: Cells,
    /// What nodes of this graph write, or wrote.
    versions: Versions,
    /// Of the inputs of the node at hand.
    specs: Vec<Spec>,
    /// What runs the nodes; without it any is taken.
    backend: Option<Arc<dyn Backend>>,
}

/// Cells that a node writes, with the version before.
type Writes = SmallVec<[(CellId, Version); 4]>;

impl Graph {
    /// A graph whose nodes `backend` is to run: one that it cannot run is refused.
    pub fn on(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend: Some(backend),
            ..Self::default()
        }
    }

    /// Nodes in the order in which they were made, which is a topological one.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Nodes with what they are called.
    pub fn numbered(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.map(|(index, node)| (NodeId::new(index), node))
    }

    /// All values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// One node.
    ///
    /// # Panics
    /// If `id` is not of this graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// One value.
    ///
    /// # Panics
    /// If `id` is not of this graph.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Changes what a value is reported as.
    pub fn set_category(&mut self, id: ValueId, category: Category) {
        self.values[id.index()].category = category;
    }

    /// Says what is to become of the results of a node that was made in a checkpoint.
    pub fn set_checkpoint_policy(&mut self, id: NodeId, policy: CheckpointPolicy) {
        if let Some(checkpoint) = &mut self.nodes[id.index()].site.checkpoint {
            checkpoint.policy = policy;
        }
    }

    /// A cell, if it is still there.
    pub fn cell(&self, id: CellId) -> Option<&Cell> {
        self.cells.all.get(&id)
    }

    /// A cell, to change its name or whether it requires gradients.
    pub fn cell_mut(&mut self, id: CellId) -> Option<&mut Cell> {
        self.cells.all.get_mut(&id)
    }

    /// Makes a cell of version 0.
    pub fn add_cell(
        &mut self,
        name: &str,
        spec: Spec,
        category: Category,
        requires_grad: bool,
    ) -> CellId {
        let id = self.cells.made;
        self.cells.made = id.next();
        let cell = Cell {
            name: name.into(),
            spec,
            category,
            requires_grad,
        };
        self.cells.all.insert(id, cell);
        id
    }

    /// Forgets a cell.
    pub fn remove_cell(&mut self, id: CellId) {
        self.cells.all.remove(&id);
    }

    /// Adds a value that the user gave.
    pub fn add_input(&mut self, spec: Spec, category: Category) -> Operand {
        let value = Value {
            spec: spec.clone(),
            producer: None,
            category,
            requires_grad: false,
        };
        self.values.push(value);
        let source = Source::Value(ValueId::new(self.values.len() - 1));
        Operand {
            source,
            spec,
            requires_grad: false,
        }
    }

    /// Reads a cell as it will be after all writes made so far. `None` if it is gone.
    pub fn read_cell(&self, id: CellId) -> Option<Operand> {
        let cell = self.cells.all.get(&id)?;
        Some(Operand {
            source: Source::Cell(id, self.version(id)),
            spec: cell.spec.clone(),
            requires_grad: cell.requires_grad,
        })
    }

    /// Adds a node: checks its inputs, infers its outputs. Nothing is computed, and nothing has
    /// changed if it is refused.
    ///
    /// # Errors
    /// What [`Op::infer`] refuses; an operand that is not there, or reaches behind its storage;
    /// [`OpError::StaleCell`] for an overwritten version; [`OpError::Overlap`] for a second operand
    /// on a cell that the node writes; [`OpError::NoKernel`], if the graph knows what runs it.
    pub fn add(
        &mut self,
        op: Arc<dyn Op>,
        inputs: &[Operand],
        site: &Site,
    ) -> Result<SmallVec<[Operand; 2]>, OpError> {
        let traits = Traits::of(op.as_ref());
        let outputs = self.infer((op.as_ref(), &traits), inputs, site)?;
        let writes = self.writes(op.name(), &traits, inputs)?;
        let kernel = self.kernel((op.as_ref(), &traits), inputs, &outputs, &writes)?;
        Ok(self.push((op, traits, kernel), inputs, outputs, writes, site))
    }

    /// Adds a node that was checked.
    fn push(
        &mut self,
        (op, traits, kernel): (Arc<dyn Op>, Traits, Option<KernelId>),
        inputs: &[Operand],
        outputs: SmallVec<[Spec; 2]>,
        writes: Writes,
        site: &Site,
    ) -> SmallVec<[Operand; 2]> {
        for &(id, version) in &writes {
            self.versions.write(id, version.next(), site.location);
        }
        let requires_grad = site.grad_enabled
            && traits.effect.is_repeatable()
            && inputs.iter().any(|operand| operand.requires_grad);
        let category = match site.phase {
            Phase::Forward => Category::Activation,
            Phase::Backward | Phase::Update => Category::Gradient,
        };
        let node = NodeId::new(self.nodes.len());
        let mut ids = SmallVec::new();
        let operands = outputs
            .into_iter()
            .enumerate()
            .map(|(i, spec)| {
                let id = ValueId::new(self.values.len());
                let requires_grad = requires_grad && spec.dtype.is_float();
                ids.push(id);
                self.values.push(Value {
                    spec: spec.clone(),
                    producer: Some((node, i as u32)),
                    category,
                    requires_grad,
                });
                Operand {
                    source: Source::Value(id),
                    spec,
                    requires_grad,
                }
            })
            .collect();
        self.nodes.push(Node {
            op,
            traits,
            kernel,
            inputs: inputs.to_vec(),
            outputs: ids,
            writes,
            site: site.clone(),
        });
        operands
    }

    /// Which node and output made an operand, if a pending node did.
    pub fn producer(&self, operand: &Operand) -> Option<(NodeId, u32)> {
        self.value(operand.value()?).producer
    }

    /// Changes what nodes read.
    pub fn follow(&mut self, change: impl Fn(&mut Operand)) {
        let inputs = self.nodes.iter_mut().flat_map(|node| &mut node.inputs);
        inputs.for_each(change);
    }

    /// Forgets nodes and values, and what they write or wrote. Cells stay.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.values.clear();
        self.versions = Versions::default();
    }

    /// Whether any pending node writes a cell or guards one.
    pub fn has_effects(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| matches!(node.traits.effect, Effect::WritesCell | Effect::Guard))
    }
}
