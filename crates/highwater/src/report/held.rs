//! Who holds the bytes of the process at one moment of a plan.

use super::names;
use crate::problem::compile::{Compiled, Origin};
use crate::store::kind;
use crate::store::memory::Memory;
use highwater_graph::{Category, CellId, Graph, NodeId};
use highwater_plan::{ValueId, footprint};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Who holds the bytes at one moment, three ways.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// By category, largest first; together all bytes of the process. `rounding` is what lies
    /// unused between buffers and at the end of pages.
    pub kinds: Vec<Holder>,
    /// By layer, largest first: what belongs to a module, in the arena or as state.
    pub layers: Vec<Layer>,
    /// By the operation that made the value, largest first: what is in the arena.
    pub operations: Vec<Holder>,
}

/// Values of one kind that are held together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Category, or category and operation, such as `activation of gelu`.
    pub what: String,
    /// Bytes together.
    pub bytes: u64,
    /// How many values.
    pub values: u32,
}

/// What belongs to a layer, or to layers that differ by their number alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Path of the module, such as `transformer.h.[0-11]`; empty outside any.
    pub module: String,
    /// How many layers.
    pub layers: u32,
    /// Bytes together.
    pub bytes: u64,
    /// Of those: parameters, moments and gradients that outlive the plan.
    pub state_bytes: u64,
    /// Bytes of the layer that has least.
    pub least_bytes: u64,
    /// Bytes of the layer that has most.
    pub most_bytes: u64,
    /// The layer that has most.
    pub most_in: String,
}

/// What is in the arena at a moment.
pub(super) struct Moment<'a> {
    /// Height of the arena.
    pub(super) arena_bytes: u64,
    /// Bytes of the cells in memory that the plan decided about.
    pub(super) home_bytes: u64,
    /// The node that runs.
    pub(super) node: Option<NodeId>,
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

/// Sums bytes under names.
#[derive(Default)]
struct Sums(BTreeMap<String, (u64, u32)>);

impl Sums {
    fn add(&mut self, what: String, bytes: u64) {
        let sum = self.0.entry(what).or_default();
        *sum = (sum.0 + bytes, sum.1 + 1);
    }

    fn total(&self) -> u64 {
        self.0.values().map(|sum| sum.0).sum()
    }

    fn list(self) -> Vec<Holder> {
        let holder = |(what, (bytes, values))| Holder {
            what,
            bytes,
            values,
        };
        let sums = self.0.into_iter().filter(|(_, sum)| sum.0 > 0);
        let mut list: Vec<Holder> = sums.map(holder).collect();
        list.sort_by_key(|holder| Reverse(holder.bytes));
        list
    }
}

/// Bytes of each layer: all, and of those the state.
type Layers = BTreeMap<String, (u64, u64)>;

/// Lists who holds what.
pub(super) fn held(
    memory: &Memory,
    graph: &Graph,
    compiled: &Compiled,
    moment: &Moment<'_>,
    beside: &Beside,
) -> Held {
    let (mut kinds, mut operations, mut layers) = (Sums::default(), Sums::default(), Layers::new());
    let mut layer = |module: &str, bytes: u64, state: u64| {
        let sum = layers.entry(names::layer(module).to_owned()).or_default();
        *sum = (sum.0 + bytes, sum.1 + state);
    };
    let module = |node: NodeId| &*graph.node(node).site.module;
    let decided: BTreeSet<CellId> = compiled.cells().collect();
    for (id, storage) in memory.cells.iter() {
        let (Some(cell), Some(storage)) = (graph.cell(id), storage.storage()) else {
            continue;
        };
        if moment.home_bytes == 0 && decided.contains(&id) {
            continue;
        }
        let bytes = footprint(storage.bytes());
        kinds.add(kind(cell.category).to_string(), bytes);
        layer(owner(&cell.name, cell.category), bytes, bytes);
    }
    for (&id, storage) in &memory.storages {
        let value = graph.value(id);
        kinds.add(kind(value.category).to_string(), footprint(storage.bytes()));
    }
    for &(id, bytes) in moment.values {
        let value = match compiled.values[id as usize] {
            Origin::Value(value) => graph.value(value),
            Origin::Cell(cell) => {
                if let Some(cell) = graph.cell(cell) {
                    let category = kind(cell.category).to_string();
                    operations.add(format!("{category} from below memory"), bytes);
                    layer(owner(&cell.name, cell.category), bytes, 0);
                    kinds.add(category, bytes);
                }
                continue;
            }
        };
        let category = kind(value.category).to_string();
        let made = value.producer.map(|(node, _)| node);
        let op = made.map_or("input", |node| graph.node(node).op.name());
        operations.add(format!("{category} of {op}"), bytes);
        layer(made.map_or("", module), bytes, 0);
        kinds.add(category, bytes);
    }
    if moment.scratch_bytes > 0 {
        let category = kind(Category::Workspace).to_string();
        let op = moment.node.map_or("", |node| graph.node(node).op.name());
        operations.add(format!("{category} of {op}"), moment.scratch_bytes);
        layer(moment.node.map_or("", module), moment.scratch_bytes, 0);
        kinds.add(category, moment.scratch_bytes);
    }
    let all = moment.arena_bytes + moment.home_bytes + beside.state;
    kinds.add("rounding".to_owned(), all.saturating_sub(kinds.total()));
    kinds.add("reserve".to_owned(), beside.reserve);
    kinds.add("host memory".to_owned(), beside.host);
    Held {
        kinds: kinds.list(),
        layers: grouped(&layers),
        operations: operations.list(),
    }
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

/// Brings layers together that differ by their number alone.
fn grouped(layers: &Layers) -> Vec<Layer> {
    let mut groups: BTreeMap<String, Vec<(Option<u32>, &String)>> = BTreeMap::new();
    for name in layers.keys() {
        let (pattern, number) = names::pattern(name);
        groups.entry(pattern).or_default().push((number, name));
    }
    let mut list = Vec::new();
    for (pattern, mut members) in groups {
        members.sort_unstable();
        let bytes = |member: &(Option<u32>, &String)| layers[member.1].0;
        let Some(most) = members.iter().max_by_key(|member| bytes(member)) else {
            continue;
        };
        list.push(Layer {
            module: names::join(&pattern, members.iter().filter_map(|member| member.0)),
            layers: members.len() as u32,
            bytes: members.iter().map(bytes).sum(),
            state_bytes: members.iter().map(|member| layers[member.1].1).sum(),
            least_bytes: members.iter().map(bytes).min().unwrap_or(0),
            most_bytes: bytes(most),
            most_in: most.1.clone(),
        });
    }
    list.sort_by_key(|layer| Reverse(layer.bytes));
    list
}
