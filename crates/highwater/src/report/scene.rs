//! What can still be said about a problem when its graph is gone.

use super::held::{Held, Layers, Sums, grouped};
use super::names;
use crate::error::describe_at;
use crate::problem::compiled::{Compiled, Origin};
use crate::store::memory::Memory;
use highwater_graph::{Category, CellId, Graph, Node, NodeId, Site};
use highwater_plan::{self as plan, ValueId, footprint};
use std::collections::BTreeSet;

/// What is in the arena at a moment.
pub(super) struct Moment<'a> {
    /// Height of the arena.
    pub(super) arena_bytes: u64,
    /// Bytes of the cells in memory that the plan decided about.
    pub(super) home_bytes: u64,
    /// The node of the problem that runs.
    pub(super) node: Option<plan::NodeId>,
    /// The problem's values and their bytes.
    pub(super) values: &'a [(ValueId, u64)],
    pub(super) scratch_bytes: u64,
}

/// What the process holds beside a plan and the cells that it decided about.
pub(super) struct Beside {
    /// In bytes, like all.
    pub(super) state: u64,
    pub(super) reserve: u64,
    /// Room of host memory, where that belongs to the process.
    pub(super) host: u64,
}

/// What can be said about the nodes and values of a problem, and what lies beside its plans: kept with
/// them, since the graph is gone by the time that somebody asks.
#[derive(Debug)]
pub(super) struct Scene {
    /// Per node of the problem.
    nodes: Vec<Made>,
    /// Per value of the problem.
    values: Vec<Label>,
    beside: Vec<Lasting>,
}

/// A node's operation, and where it comes from.
#[derive(Debug, Clone)]
struct Made {
    op: &'static str,
    site: Site,
}

impl Made {
    fn new(node: &Node) -> Self {
        Self {
            op: node.op.name(),
            site: node.site.clone(),
        }
    }
}

/// What a value of a problem is.
#[derive(Debug)]
enum Label {
    Value(Category, Option<Made>),
    /// A cell that may be below memory, and its layer.
    Cell(Category, String),
}

/// A cell in memory, with its layer, or a value in storage of its own.
#[derive(Debug)]
struct Lasting {
    category: Category,
    layer: Option<String>,
    bytes: u64,
    /// Whether plans of the problem decide where it is.
    decided: bool,
}

impl Scene {
    pub(super) fn new(memory: &Memory, graph: &Graph, compiled: &Compiled) -> Self {
        let made = |node: NodeId| Made::new(compiled.node(graph, node));
        let label = |origin: &Origin| match *origin {
            Origin::Value(id) => {
                let value = graph.value(id);
                let made = value.producer.map(|(node, _)| made(node));
                Label::Value(value.category, made)
            }
            Origin::Cell(id) => match graph.cell(id) {
                Some(cell) => Label::Cell(cell.category, layer_of(&cell.name, cell.category)),
                None => Label::Value(Category::Parameter, None),
            },
        };
        let decided: BTreeSet<CellId> = compiled.cells().collect();
        let cells = memory.cells.iter().filter_map(|(id, storage)| {
            let (cell, storage) = (graph.cell(id)?, storage.storage()?);
            Some(Lasting {
                category: cell.category,
                layer: Some(layer_of(&cell.name, cell.category)),
                bytes: footprint(storage.bytes()),
                decided: decided.contains(&id),
            })
        });
        let values = memory.storages.iter().map(|(&id, storage)| Lasting {
            category: graph.value(id).category,
            layer: None,
            bytes: footprint(storage.bytes()),
            decided: false,
        });
        Self {
            nodes: compiled.nodes.iter().map(|&node| made(node)).collect(),
            values: compiled.values.iter().map(label).collect(),
            beside: cells.chain(values).collect(),
        }
    }

    /// A node of the problem: operation, module, source line.
    pub(super) fn describe(&self, node: Option<plan::NodeId>) -> String {
        let made = node.and_then(|node| self.nodes.get(node.index()));
        made.map_or_else(String::new, |made| describe_at(made.op, &made.site))
    }

    /// Lists who holds what.
    pub(super) fn held(&self, moment: &Moment<'_>, beside: &Beside) -> Held {
        let mut sums = Sorted::default();
        for lasting in &self.beside {
            if moment.home_bytes == 0 && lasting.decided {
                continue;
            }
            let (category, bytes) = (lasting.category, lasting.bytes);
            sums.kinds.add(category.to_string(), bytes);
            if let Some(layer) = &lasting.layer {
                sums.layer(layer, bytes, bytes);
            }
        }
        for &(id, bytes) in moment.values {
            match &self.values[id.index()] {
                Label::Value(category, made) => sums.made(*category, made.as_ref(), bytes),
                Label::Cell(category, layer) => {
                    let category = category.to_string();
                    let what = format!("{category} loaded from disk or host");
                    sums.operations.add(what, bytes);
                    sums.layer(layer, bytes, 0);
                    sums.kinds.add(category, bytes);
                }
            }
        }
        if moment.scratch_bytes > 0 {
            let made = moment.node.and_then(|node| self.nodes.get(node.index()));
            let op = made.map_or("", |made| made.op);
            let category = Category::Workspace.to_string();
            let what = format!("{category} of {op}");
            sums.operations.add(what, moment.scratch_bytes);
            sums.layer(layer_in(made), moment.scratch_bytes, 0);
            sums.kinds.add(category, moment.scratch_bytes);
        }
        let all = moment.arena_bytes + moment.home_bytes + beside.state;
        let rounding = all.saturating_sub(sums.kinds.total());
        sums.kinds.add("rounding".to_owned(), rounding);
        sums.kinds.add("reserve".to_owned(), beside.reserve);
        sums.kinds.add("host memory".to_owned(), beside.host);
        Held {
            kinds: sums.kinds.list(),
            layers: grouped(&sums.layers),
            operations: sums.operations.list(),
        }
    }
}

/// Sums by kind, operation and layer.
#[derive(Default)]
struct Sorted {
    kinds: Sums,
    operations: Sums,
    layers: Layers,
}

impl Sorted {
    fn layer(&mut self, layer: &str, bytes: u64, state: u64) {
        let sum = self.layers.entry(layer.to_owned()).or_default();
        *sum = (sum.0 + bytes, sum.1 + state);
    }

    fn made(&mut self, category: Category, made: Option<&Made>, bytes: u64) {
        let category = category.to_string();
        let op = made.map_or("input", |made| made.op);
        self.operations.add(format!("{category} of {op}"), bytes);
        self.layer(layer_in(made), bytes, 0);
        self.kinds.add(category, bytes);
    }
}

/// The layer that a node belongs to.
fn layer_in(made: Option<&Made>) -> &str {
    names::layer(made.map_or("", |made| &made.site.module))
}

/// The layer that a cell belongs to.
fn layer_of(name: &str, category: Category) -> String {
    names::layer(owner(name, category)).to_owned()
}

/// The module that a cell belongs to: `exp_avg.h.3.mlp.weight` to `h.3.mlp`.
fn owner(name: &str, category: Category) -> &str {
    let name = match category {
        Category::OptimizerState => name.split_once('.').map_or(name, |(_, name)| name),
        Category::Gradient => name.strip_suffix(".grad").unwrap_or(name),
        _ => name,
    };
    name.rsplit_once('.').map_or("", |(module, _)| module)
}
