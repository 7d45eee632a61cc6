//! The pending graph: what the user's code has asked for and nobody has computed yet.

mod ids;
mod prune;

pub use ids::{CellId, NodeId, ValueId, Version};

use crate::{BuildMixer, Checkpoint, CheckpointPolicy, Effect, Op, OpError, RANK_MAX, Shape, Spec};
use smallvec::SmallVec;
use std::panic::Location;
use std::sync::Arc;

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

/// What a value or cell holds, for reports and for the tracker.
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
    pub location: &'static Location<'static>,
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
    /// What it reads.
    pub inputs: Vec<Operand>,
    /// What it fills.
    pub outputs: SmallVec<[ValueId; 2]>,
    /// Cells it writes, with the version before.
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
    /// The version that a read takes now: pending writes included.
    pub version: Version,
    /// The version that is really in memory.
    pub evaluated: Version,
    /// Who wrote it last.
    pub written_at: Option<&'static Location<'static>>,
}

/// Nodes and values since the last evaluation, and the cells, which outlive it.
#[derive(Debug, Default, Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    values: Vec<Value>,
    #[expect(clippy::disallowed_types, reason = "its order is never read")]
    cells: std::collections::HashMap<CellId, Cell, BuildMixer>,
    cells_made: CellId,
    /// Of the inputs of the node at hand.
    specs: Vec<Spec>,
}

impl Graph {
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
        self.cells.get(&id)
    }

    /// A cell, to change its name or whether it requires gradients.
    pub fn cell_mut(&mut self, id: CellId) -> Option<&mut Cell> {
        self.cells.get_mut(&id)
    }

    /// Makes a cell of version 0.
    pub fn add_cell(
        &mut self,
        name: &str,
        spec: Spec,
        category: Category,
        requires_grad: bool,
    ) -> CellId {
        let id = self.cells_made;
        self.cells_made = id.next();
        let cell = Cell {
            name: name.into(),
            spec,
            category,
            requires_grad,
            version: Version::default(),
            evaluated: Version::default(),
            written_at: None,
        };
        self.cells.insert(id, cell);
        id
    }

    /// Forgets a cell.
    pub fn remove_cell(&mut self, id: CellId) {
        self.cells.remove(&id);
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
        let cell = self.cells.get(&id)?;
        Some(Operand {
            source: Source::Cell(id, cell.version),
            spec: cell.spec.clone(),
            requires_grad: cell.requires_grad,
        })
    }

    /// Adds a node: checks its inputs, infers its outputs. Nothing is computed.
    ///
    /// # Errors
    /// What [`Op::infer`] refuses; [`OpError::StaleCell`] for an overwritten version.
    pub fn add(
        &mut self,
        op: Arc<dyn Op>,
        inputs: &[Operand],
        site: &Site,
    ) -> Result<SmallVec<[Operand; 2]>, OpError> {
        for operand in inputs {
            self.check_fresh(op.name(), operand, site)?;
        }
        self.specs.clear();
        self.specs
            .extend(inputs.iter().map(|input| input.spec.clone()));
        let outputs = op.infer(&self.specs)?;
        if !outputs.is_empty() && !op.effect().is_repeatable() {
            let got = format!("{} outputs", outputs.len());
            return Err(OpError::shape(
                op.name(),
                "a node without outputs, as it has an effect",
                got,
            ));
        }
        if let Some(output) = outputs.iter().find(|o| Shape::checked(o.shape()).is_none()) {
            let most =
                format!("a result of at most {RANK_MAX} dimensions that a memory could hold");
            return Err(OpError::shape(op.name(), most, output.to_string()));
        }
        let writes = self.bump_versions(op.as_ref(), inputs, site)?;
        let requires_grad = site.grad_enabled
            && op.effect().is_repeatable()
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
            inputs: inputs.to_vec(),
            outputs: ids,
            writes,
            site: site.clone(),
        });
        Ok(operands)
    }

    /// That the version of a cell which an operand reads was not overwritten.
    ///
    /// # Errors
    /// [`OpError::StaleCell`].
    pub fn check_fresh(
        &self,
        op: &'static str,
        operand: &Operand,
        site: &Site,
    ) -> Result<(), OpError> {
        let Source::Cell(id, wanted) = operand.source else {
            return Ok(());
        };
        let cell = self.cells.get(&id);
        if cell.is_some_and(|cell| wanted >= cell.evaluated) {
            return Ok(());
        }
        let unknown = || "an unknown place".to_owned();
        Err(OpError::StaleCell {
            op,
            cell: cell.map_or_else(|| "a dropped cell".to_owned(), |cell| cell.name.to_string()),
            wanted,
            current: cell.map_or(Version::default(), |cell| cell.evaluated),
            read_at: site.location.to_string(),
            written_at: cell
                .and_then(|cell| cell.written_at)
                .map_or_else(unknown, ToString::to_string),
        })
    }

    fn bump_versions(
        &mut self,
        op: &dyn Op,
        inputs: &[Operand],
        site: &Site,
    ) -> Result<SmallVec<[(CellId, Version); 4]>, OpError> {
        let mut writes = SmallVec::new();
        for position in op.writes() {
            let cell = match inputs.get(position).map(|operand| operand.source) {
                Some(Source::Cell(id, version)) => self
                    .cells
                    .get_mut(&id)
                    .filter(|c| c.version == version)
                    .map(|c| (id, c)),
                _ => None,
            };
            let Some((id, cell)) = cell else {
                let got = format!("something else at input {position}");
                return Err(OpError::shape(
                    op.name(),
                    "the current version of a cell",
                    got,
                ));
            };
            writes.push((id, cell.version));
            cell.version = cell.version.next();
            cell.written_at = Some(site.location);
        }
        Ok(writes)
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

    /// Whether an operand reads a version of a cell that a pending node is to write.
    pub fn is_awaited(&self, operand: &Operand) -> bool {
        match operand.source {
            Source::Cell(id, version) => {
                let cell = self.cells.get(&id);
                cell.is_some_and(|cell| cell.evaluated < version)
            }
            Source::Value(_) => false,
        }
    }

    /// Whether a pending node writes the version of a cell that an operand reads.
    pub fn is_overwritten(&self, operand: &Operand) -> bool {
        match operand.source {
            Source::Cell(id, version) => {
                let cell = self.cells.get(&id);
                cell.is_some_and(|cell| cell.version > version)
            }
            Source::Value(_) => false,
        }
    }

    /// The pending updates were left out: what they would have written is as it was.
    pub fn leave_out_updates(&mut self) {
        for node in self.nodes.iter().rev().filter(|node| node.is_update()) {
            for &(id, before) in &node.writes {
                if let Some(cell) = self.cells.get_mut(&id) {
                    cell.version = before;
                }
            }
        }
    }

    /// Every pending write is now in memory.
    pub fn mark_evaluated(&mut self) {
        for cell in self.cells.values_mut() {
            cell.evaluated = cell.version;
        }
    }

    /// Forgets nodes and values, and writes that were not evaluated. Cells stay.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.values.clear();
        for cell in self.cells.values_mut() {
            cell.version = cell.evaluated;
        }
    }

    /// Whether any pending node writes a cell or guards one.
    pub fn has_effects(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| matches!(node.op.effect(), Effect::WritesCell | Effect::Guard))
    }
}
