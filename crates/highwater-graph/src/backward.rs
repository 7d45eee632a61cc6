//! What an operation's backward sees, and how it emits nodes.

use crate::{Graph, NodeId, Op, OpError, Operand, Site, Source};
use smallvec::SmallVec;
use std::sync::Arc;

/// One node's turn in the backward walk.
#[derive(Debug)]
pub struct Backward<'a> {
    graph: &'a mut Graph,
    node: NodeId,
    site: Site,
    /// Gradient of each output, in the output's shape; `None` where no loss depends on it.
    grads: &'a [Option<Operand>],
    /// Gradient that each input has already, if one dense gradient of the whole source.
    existing: &'a [Option<Operand>],
    results: SmallVec<[Option<(Operand, bool)>; 4]>,
    /// Which inputs want a gradient.
    needed: SmallVec<[bool; 4]>,
}

impl<'a> Backward<'a> {
    /// Starts the turn of `node`. `site` is where the emitted nodes come from.
    pub fn new(
        graph: &'a mut Graph,
        node: NodeId,
        site: Site,
        grads: &'a [Option<Operand>],
        existing: &'a [Option<Operand>],
    ) -> Self {
        let inputs = &graph.node(node).inputs;
        let results = SmallVec::from_elem(None, inputs.len());
        let needed = inputs.iter().map(|input| input.requires_grad).collect();
        Self {
            graph,
            node,
            site,
            grads,
            existing,
            results,
            needed,
        }
    }

    /// Has only some of the inputs that require gradients want one.
    #[must_use]
    pub fn only(mut self, needed: &[bool]) -> Self {
        for (wants, needed) in self.needed.iter_mut().zip(needed) {
            *wants &= needed;
        }
        self
    }

    /// The node's `i`-th input, as it was read.
    pub fn input(&self, i: usize) -> Operand {
        self.graph.node(self.node).inputs[i].clone()
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.results.len()
    }

    /// The node's `i`-th output.
    pub fn output(&self, i: usize) -> Operand {
        let id = self.graph.node(self.node).outputs[i];
        let value = self.graph.value(id);
        Operand {
            source: Source::Value(id),
            spec: value.spec.clone(),
            requires_grad: value.requires_grad,
        }
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.grads.len()
    }

    /// Gradient of the `i`-th output; `None` where no loss depends on that output.
    pub fn grad(&self, i: usize) -> Option<Operand> {
        self.grads[i].clone()
    }

    /// Whether the `i`-th input wants a gradient.
    pub fn needs(&self, i: usize) -> bool {
        self.needed[i]
    }

    /// Whether an operand is known, when the graph is built, to be one everywhere: multiplying by
    /// it may be left out, since that cannot change a bit.
    pub fn is_one(&self, operand: &Operand) -> bool {
        self.graph
            .producer(operand)
            .and_then(|(node, _)| self.graph.node(node).traits.constant)
            .is_some_and(|value| value.to_bits() == 1.0_f64.to_bits())
    }

    /// The gradient that the `i`-th input has from other uses so far, dense and in its own shape.
    /// An operation that can add to it in one pass may read it and answer with
    /// [`Backward::set_accumulated`].
    pub fn existing(&self, i: usize) -> Option<Operand> {
        self.existing[i].clone()
    }

    /// Whether gradients flow back through the nodes that it emits: `create_graph` of `torch.autograd.grad`.
    pub fn is_recorded(&self) -> bool {
        self.site.grad_enabled
    }

    /// Emits a node and gives its outputs.
    ///
    /// # Errors
    /// What [`Graph::add`] refuses.
    pub fn emit(
        &mut self,
        op: impl Op,
        inputs: &[Operand],
    ) -> Result<SmallVec<[Operand; 2]>, OpError> {
        self.graph.add(Arc::new(op), inputs, &self.site)
    }

    /// Emits a node of one output and gives it.
    ///
    /// # Errors
    /// What [`Graph::add`] refuses.
    pub fn emit_one(&mut self, op: impl Op, inputs: &[Operand]) -> Result<Operand, OpError> {
        self.emit_shared(Arc::new(op), inputs)
    }

    /// [`Backward::emit_one`], of an operation that others may have as well.
    ///
    /// # Errors
    /// What [`Graph::add`] refuses.
    pub fn emit_shared(&mut self, op: Arc<dyn Op>, inputs: &[Operand]) -> Result<Operand, OpError> {
        let name = op.name();
        let one = self.graph.add(op, inputs, &self.site)?.into_iter().next();
        one.ok_or(OpError::Arity {
            op: name,
            expected: 1,
            got: 0,
        })
    }

    /// Says what this node adds to the gradient of its `i`-th input (same shape as the input).
    pub fn set(&mut self, i: usize, grad: Operand) {
        self.results[i] = Some((grad, false));
    }

    /// What was said so far that this node adds to the gradient of its `i`-th input.
    pub fn result(&self, i: usize) -> Option<Operand> {
        self.results[i].as_ref().map(|(grad, _)| grad.clone())
    }

    /// Says what the whole gradient of the `i`-th input is now: [`Backward::existing`] included.
    pub fn set_accumulated(&mut self, i: usize, grad: Operand) {
        self.results[i] = Some((grad, true));
    }

    /// What was set: per input the gradient, and whether it includes the existing one.
    pub fn finish(self) -> SmallVec<[Option<(Operand, bool)>; 4]> {
        self.results
    }
}
