//! Chains and trees of pointwise nodes become one node each before a problem is posed, where that changes no
//! bit and hardly a plan gets worse.
//!
//! A node takes in another if it alone reads what that one makes, element by element, and nobody else wants
//! it. The pieces of what is handed on stay in a cache ([`Fused`]); a plan never sees it. The node that is left
//! has the number, the output and the place of the last one, so that what is known of the graph stays true.
//!
//! What both read has to be there at once now. So that no plan of the two is lost, one of these must hold:
//!
//! - *Late*: of what the first reads, at most one value takes memory of the plan, and that is read whole and
//!   is like the result. It can be held, and written over, wherever the result was; but no version of a cell
//!   that is written later, which could wait for the second.
//! - *Early*: nothing comes between the two, what the second reads beside is there for the first as well, and
//!   its output is like the result, in whose place it can be made at once.
//!
//! Where nothing comes between and the output is like the result, what takes less than a 64th of it (means of
//! rows, scales, biases) does not count. A plan that would free these between the two needs that much more
//! now; and a search for the least may miss what it found before. So an engine goes back to nodes one by one
//! where a problem with merged ones does not fit.

use highwater_graph::{Effect, Graph, Node, NodeId, Operand, Source, Spec, ValueId};
use highwater_ops::{Fused, Kernels, Piece, Step, Taken};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes that become one, at most.
const MOST_NODES: usize = 8;
/// Inputs of such a node, at most.
const MOST_INPUTS: usize = 5;
/// What takes less than this part of a result is not counted.
const NEGLIGIBLE: u64 = 64;

/// Nodes of a graph that stand for several, by the last of those.
pub(crate) type FusedNodes = BTreeMap<NodeId, Node>;

/// The graph, and what is known of it beside.
pub(crate) struct Fusing<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) kernels: &'a Kernels,
    /// Whether a value must be made, or its node stay by itself, whoever reads it.
    pub(crate) stays: &'a dyn Fn(ValueId) -> bool,
    /// Whether what lies there takes no memory of a plan.
    pub(crate) is_free: &'a dyn Fn(Source) -> bool,
}

/// Merges nodes among the `needed` ones; those that others stand for are not needed any more.
pub(crate) fn fuse(fusing: &Fusing<'_>, needed: &mut [bool]) -> FusedNodes {
    let Some(kernel) = fusing.kernels.of_fused() else {
        return FusedNodes::new();
    };
    let mut search = Search::new(fusing, needed);
    for id in NodeId::below(needed.len()) {
        if !needed[id.index()] || search.piece(id).is_none() {
            continue;
        }
        let mut group = Group(SmallVec::from_slice(&[id]));
        while let Some(other) = search.next(&group) {
            let taken = search.groups.remove(&other).unwrap_or_default();
            group.0.extend(taken.0);
            group.0.sort_unstable();
        }
        search.groups.insert(id, group);
    }
    let several = search.groups.iter().filter(|(_, group)| group.0.len() > 1);
    let fused = several.filter_map(|(&id, group)| {
        let (op, inputs) = search.merged(group)?;
        let last = fusing.graph.node(id);
        let node = Node {
            op: Arc::new(op),
            kernel: Some(kernel),
            inputs,
            ..last.clone()
        };
        for member in group.0.iter().filter(|&&member| member != id) {
            needed[member.index()] = false;
        }
        Some((id, node))
    });
    fused.collect()
}

/// Nodes that become one, in order: the last makes what others read.
#[derive(Default)]
struct Group(SmallVec<[NodeId; MOST_NODES]>);

struct Search<'a> {
    fusing: &'a Fusing<'a>,
    /// How often needed nodes read each value.
    uses: Vec<u32>,
    /// How many needed nodes come before each node.
    before: Vec<u32>,
    /// What became of the nodes so far, by the last of each group.
    groups: BTreeMap<NodeId, Group>,
}

impl<'a> Search<'a> {
    fn new(fusing: &'a Fusing<'a>, needed: &[bool]) -> Self {
        let nodes = fusing.graph.nodes();
        let mut uses = vec![0; fusing.graph.values().len()];
        let (mut before, mut count) = (Vec::with_capacity(nodes.len()), 0);
        for (node, &needed) in nodes.iter().zip(needed) {
            before.push(count);
            if needed {
                count += 1;
                for value in node.inputs.iter().filter_map(Operand::value) {
                    uses[value.index()] += 1;
                }
            }
        }
        let groups = BTreeMap::new();
        Self {
            fusing,
            uses,
            before,
            groups,
        }
    }

    /// What the kernel of a node does with a piece, if it is one that may be merged.
    fn piece(&self, id: NodeId) -> Option<Piece> {
        let node = self.fusing.graph.node(id);
        let alone = node.outputs.len() == 1 && node.traits.effect == Effect::Pure;
        let kernel = node.kernel.filter(|_| alone)?;
        self.fusing.kernels.kernel(kernel).piece(node.op.as_ref())
    }

    fn output(&self, id: NodeId) -> ValueId {
        self.fusing.graph.node(id).outputs[0]
    }

    fn spec(&self, id: NodeId) -> &'a Spec {
        &self.fusing.graph.value(self.output(id)).spec
    }

    /// What the nodes of a group read that none of them makes.
    fn inputs(&self, group: &'a Group) -> impl Iterator<Item = &'a Operand> {
        let graph = self.fusing.graph;
        let nodes = group.0.iter().map(|&id| graph.node(id));
        let inputs = nodes.flat_map(|node| &node.inputs);
        inputs.filter(|input| {
            let made_by = graph.producer(input);
            made_by.is_none_or(|(id, _)| !group.0.contains(&id))
        })
    }

    /// The last node of another group that the group may take in.
    fn next(&self, group: &Group) -> Option<NodeId> {
        let mut makers = self
            .inputs(group)
            .filter_map(|input| Some(self.fusing.graph.producer(input)?.0));
        makers.find(|maker| {
            let other = self.groups.get(maker);
            other.is_some_and(|other| {
                self.fits(group, (*maker, other)) && self.is_safe(group, (*maker, other))
            })
        })
    }

    /// Whether the group alone reads what another makes, in one part of the step, and element by element.
    fn fits(&self, group: &Group, (maker, other): (NodeId, &Group)) -> bool {
        let Some(&last) = group.0.last() else {
            return false;
        };
        let (value, spec) = (self.output(maker), self.spec(maker));
        let reads = self
            .inputs(group)
            .filter(|input| input.value() == Some(value));
        let whole = reads.filter(|input| input.spec == *spec).count();
        let [a, b] = [maker, last].map(|id| &self.fusing.graph.node(id).site);
        whole == self.uses[value.index()] as usize
            && spec.shape() == self.spec(last).shape()
            && spec.layout.numel() > 0
            && (a.phase, a.checkpoint) == (b.phase, b.checkpoint)
            && group.0.len() + other.0.len() <= MOST_NODES
            && self.count(group, (value, other)) <= MOST_INPUTS
            && !(self.fusing.stays)(value)
    }

    /// How many views both read beside what the second reads of the first.
    fn count(&self, group: &Group, (value, other): (ValueId, &Group)) -> usize {
        let mut inputs = Vec::new();
        let beside = self
            .inputs(group)
            .filter(|input| input.value() != Some(value));
        for input in beside.chain(self.inputs(other)) {
            place(&mut inputs, input);
        }
        inputs.len()
    }

    /// Whether a plan of the two is one of theirs: see above.
    fn is_safe(&self, group: &Group, (maker, other): (NodeId, &Group)) -> bool {
        let (value, result) = (self.output(maker), self.spec(maker));
        let Some(&last) = group.0.last() else {
            return false;
        };
        let members = group.0.iter().chain(&other.0).filter(|&&id| id > maker);
        let apart = self.before[last.index()] - self.before[maker.index()];
        let together = members.count() == apart as usize;
        let in_place_of = together && self.spec(last) == result;
        let counts = |input: &&Operand| {
            let negligible = in_place_of && self.bytes(input.source) * NEGLIGIBLE <= result.bytes();
            !negligible && !(self.fusing.is_free)(input.source)
        };
        let reads = || self.inputs(other).filter(counts);
        let first = reads().next();
        let one = reads().all(|input| {
            let same = first.is_some_and(|first| first.source == input.source);
            let whole = input
                .value()
                .is_some_and(|id| self.fusing.graph.value(id).spec == input.spec);
            same && whole && input.spec == *result
        });
        if one && !self.reads_written(other) {
            return true;
        }
        let beside = self
            .inputs(group)
            .filter(|input| input.value() != Some(value));
        let mut beside = beside.filter(counts);
        in_place_of && beside.all(|input| reads().any(|read| read.source == input.source))
    }

    fn bytes(&self, source: Source) -> u64 {
        match source {
            Source::Value(id) => self.fusing.graph.value(id).spec.bytes(),
            Source::Cell(id, _) => (self.fusing.graph.cell(id)).map_or(0, |cell| cell.spec.bytes()),
        }
    }

    /// Whether a group reads a cell that is to be written: it must not come later than it would.
    fn reads_written(&self, group: &Group) -> bool {
        let mut inputs = self.inputs(group);
        inputs.any(|input| self.fusing.graph.is_overwritten(input))
    }

    /// A group as one operation, and what that reads: each view once. None if it would hold too much.
    fn merged(&self, group: &Group) -> Option<(Fused, Vec<Operand>)> {
        let mut inputs: Vec<Operand> = Vec::new();
        let mut steps = Vec::with_capacity(group.0.len());
        for &id in &group.0 {
            let node = self.fusing.graph.node(id);
            let mut reads = SmallVec::new();
            for input in &node.inputs {
                let made_by = self.fusing.graph.producer(input);
                let made_by = made_by.and_then(|(id, _)| group.0.iter().position(|&m| m == id));
                reads.push(match made_by {
                    Some(step) => Taken::Step(step),
                    None => Taken::Input(place(&mut inputs, input)),
                });
            }
            steps.push(Step {
                op: Arc::clone(&node.op),
                piece: self.piece(id)?,
                reads,
                output: self.spec(id).clone(),
            });
        }
        Some((Fused::new(steps, inputs.len())?, inputs))
    }
}

/// Where in a list of inputs one is, which is added if it is new.
fn place(inputs: &mut Vec<Operand>, input: &Operand) -> usize {
    let known = |known: &Operand| known.source == input.source && known.spec == input.spec;
    inputs.iter().position(known).unwrap_or_else(|| {
        inputs.push(input.clone());
        inputs.len() - 1
    })
}
