//! A node of the pending graph as the planner sees it.

use crate::problem::clock::{Clock, Work};
use crate::problem::compiled::Variants;
use crate::problem::numbers::Numbers;
use crate::problem::posed::Posed;
use highwater_graph::{Effect, Graph, Node, NodeId, Source, Spec};
use highwater_ops::Registered;
use highwater_plan::{self as plan, Lane};
use smallvec::SmallVec;

/// Shapes and dtypes of what a node reads and makes; the buffers serve all nodes.
#[derive(Default)]
pub(super) struct Specs {
    inputs: Vec<Spec>,
    outputs: Vec<Spec>,
}

impl Specs {
    pub(super) fn read(&mut self, graph: &Graph, node: &Node) {
        self.inputs.clear();
        self.inputs
            .extend(node.inputs.iter().map(|input| input.spec.clone()));
        self.outputs.clear();
        let outputs = node.outputs.iter();
        self.outputs
            .extend(outputs.map(|&id| graph.value(id).spec.clone()));
    }
}

/// A node that is posed, and what its costs depend on.
pub(super) struct PosedNode<'a> {
    from: &'a Posed<'a>,
    id: NodeId,
    node: &'a Node,
    specs: &'a Specs,
    /// None if no kernel takes the node: such a node is not made, and if one came about, running it says so.
    kernel: Option<&'a Registered>,
}

/// What a node reads, by the problem's numbers.
#[derive(Default)]
struct Operands {
    /// The node's input that each of `inputs` is.
    positions: SmallVec<[usize; 8]>,
    inputs: Vec<plan::ValueId>,
    /// Cells and their versions.
    reads: Vec<(plan::CellId, plan::Version)>,
    /// Which of `inputs` are cells that the node writes.
    rewrites: Vec<u32>,
}

impl<'a> PosedNode<'a> {
    pub(super) fn new(
        from: &'a Posed<'a>,
        (id, node): (NodeId, &'a Node),
        specs: &'a Specs,
    ) -> Self {
        Self {
            from,
            id,
            node,
            specs,
            kernel: node.kernel.map(|kernel| from.kernels.kernel(kernel)),
        }
    }

    /// What the node does: all of it, and the variants that a run may be.
    pub(super) fn work(&self) -> (Work, Variants) {
        let (op, Specs { inputs, outputs }) = (self.node.op.as_ref(), self.specs);
        let whole = Work::new(op, inputs, outputs, self.from.threads);
        let mut variants = Variants::new();
        let Some(kernel) = self.kernel else {
            return (whole, variants);
        };
        let is_repeatable = self.node.traits.effect.is_repeatable();
        for (o, &output) in self.node.outputs.iter().enumerate().take(32) {
            if !is_repeatable || (self.from.external)(output) {
                continue;
            }
            if let Some(saved) = kernel.optional(op, o, inputs, outputs) {
                for i in 0..=variants.len() {
                    let (mask, rest) = i.checked_sub(1).map_or((0, whole), |i| variants[i]);
                    variants.push((mask | 1 << o, rest.without(o, saved)));
                }
            }
        }
        (whole, variants)
    }

    /// The problem's node.
    pub(super) fn pose(
        &self,
        work: &Work,
        variants: &Variants,
        numbers: &mut Numbers,
    ) -> plan::Node {
        let (from, node) = (self.from, self.node);
        let effect = node.traits.effect;
        let operands = self.operands(numbers);
        let in_place = self.in_place(&operands.positions);
        let outputs = node.outputs.iter().map(|&value| numbers.value(value));
        let outputs = outputs.collect();
        let writes = node.writes.iter();
        let writes = writes.map(|&(cell, version)| numbers.cell(from.graph, cell, version));
        plan::Node {
            inputs: operands.inputs,
            outputs,
            reads: operands.reads,
            writes: writes.collect(),
            rewrites: operands.rewrites,
            in_place,
            scratch_bytes: self.scratch_bytes(),
            // What guards where that is free is no reason to prefer another plan.
            seconds: if node.traits.is_soft {
                0.0
            } else {
                from.clock.told(work)
            },
            optional: optional(from.clock, work, variants),
            effect: match effect {
                Effect::Pure | Effect::Random => plan::Effect::Repeatable,
                Effect::WritesCell | Effect::Collective => plan::Effect::Once,
                Effect::Guard => plan::Effect::Guard,
            },
            soft: node.traits.is_soft,
            lane: match effect {
                Effect::Collective => Lane::Communicate,
                _ => Lane::Compute,
            },
            done: from.progress.done.contains(&self.id),
        }
    }

    fn operands(&self, numbers: &mut Numbers) -> Operands {
        let (from, node) = (self.from, self.node);
        let mut found = Operands::default();
        for (position, input) in node.inputs.iter().enumerate() {
            let (cell, version) = match input.source {
                Source::Value(value) => {
                    found.positions.push(position);
                    found.inputs.push(numbers.value(value));
                    continue;
                }
                Source::Cell(cell, version) => (cell, version),
            };
            let is_written = node.traits.writes.contains(&position);
            if !is_written {
                if node.writes.iter().any(|&(written, _)| written == cell) {
                    // Read where it is written, through the same buffer.
                    continue;
                }
                found.reads.push(numbers.cell(from.graph, cell, version));
            }
            if (from.homes)(cell).is_some() {
                if is_written {
                    found.rewrites.push(found.inputs.len() as u32);
                }
                found.positions.push(position);
                found.inputs.push(numbers.cell_value(cell));
            }
        }
        found
    }

    /// Which outputs may be written over which of the problem's inputs.
    fn in_place(&self, positions: &[usize]) -> Vec<(u32, u32)> {
        let Some(kernel) = self.kernel else {
            return Vec::new();
        };
        let Specs { inputs, outputs } = self.specs;
        let pairs = kernel.in_place(self.node.op.as_ref(), inputs, outputs);
        let pair = |&(i, o): &(usize, usize)| {
            let position = positions.iter().position(|&position| position == i)?;
            whole_value(self.from.graph, self.node, i).then_some((position as u32, o as u32))
        };
        pairs.iter().filter_map(pair).collect()
    }

    fn scratch_bytes(&self) -> u64 {
        let Specs { inputs, outputs } = self.specs;
        self.kernel.map_or(0, |kernel| {
            kernel.scratch_bytes(self.node.op.as_ref(), inputs, outputs, self.from.threads)
        })
    }
}

/// The outputs that a run may leave out, with the seconds that this saves.
fn optional(clock: &Clock, whole: &Work, variants: &Variants) -> Vec<(u32, f64)> {
    let seconds = clock.told(whole);
    let mut left = seconds;
    let alone = variants.iter().filter(|(mask, _)| mask.is_power_of_two());
    let saved = alone.map(|(mask, work)| {
        let saved = (seconds - clock.told(work)).clamp(0.0, left);
        left -= saved;
        (mask.trailing_zeros(), saved)
    });
    saved.collect()
}

/// Whether input `i` reads all of a value, so that an output may take over its buffer.
fn whole_value(graph: &Graph, node: &Node, i: usize) -> bool {
    match node.inputs[i].source {
        Source::Value(id) => {
            let whole = &graph.value(id).spec.layout;
            let seen = &node.inputs[i].spec.layout;
            seen == whole || seen.covers(whole.numel())
        }
        Source::Cell(..) => false,
    }
}
