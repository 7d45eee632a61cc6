//! Where a walk comes to a function whose backward is a user's closure.

use super::walk::{Course, Request, Stop, Walk};
use crate::pending::function::{Function, Through};
use highwater_graph::{Graph, NodeId, Operand, Site, Source};
use highwater_ops::Full;
use smallvec::SmallVec;
use std::sync::Arc;

/// A closure that is to be called.
#[derive(Debug)]
pub(crate) struct Calling {
    pub(crate) function: Arc<Function>,
    /// Each output as the graph has it: with its history, where it is still there.
    pub(crate) outputs: Vec<Option<Operand>>,
    /// The gradient of each output.
    pub(crate) grads: Vec<Option<Operand>>,
    /// Each input that wants a gradient.
    pub(crate) wanted: Vec<(usize, Operand)>,
}

/// The gradients of a function's outputs, as the walk found them.
pub(super) type Found = SmallVec<[(Source, Option<Operand>); 2]>;

impl Walk<'_> {
    /// Has the closure of a function called, or, in a walk that only looks ahead, goes on with zeros.
    pub(super) fn leave(
        &mut self,
        id: NodeId,
        found: &Found,
        site: &Site,
    ) -> Result<Option<Calling>, Stop> {
        let Some(through) = Through::of(self.graph, id) else {
            return Ok(None);
        };
        let function = Arc::clone(&through.function);
        let wanted: Vec<(usize, Operand)> = function
            .differentiable()
            .filter(|(_, input)| self.wants(input))
            .collect();
        if !self.request.calls {
            for (_, input) in &wanted {
                let zeros = Full {
                    value: 0.0,
                    dtype: input.spec.dtype,
                    shape: input.shape().clone(),
                };
                let zeros = self.emit(Arc::new(zeros), &[], site)?;
                self.contribute(input.source, input.spec.layout.clone(), zeros);
            }
            return Ok(None);
        }
        let mut outputs = vec![None; function.outputs.len()];
        let mut grads = outputs.clone();
        for (source, grad) in found {
            let Source::Value(value) = *source else {
                continue;
            };
            let made = self.graph.value(value);
            let by = made
                .producer
                .and_then(|(node, _)| Through::of(self.graph, node));
            if let Some(Through { output, .. }) = by {
                outputs[*output] = Some(Operand {
                    source: *source,
                    spec: made.spec.clone(),
                    requires_grad: made.requires_grad,
                });
                grads[*output].clone_from(grad);
            }
        }
        Ok(Some(Calling {
            function,
            outputs,
            grads,
            wanted,
        }))
    }
}

impl Course {
    /// Goes on with what a closure has answered for the inputs that want a gradient.
    pub(crate) fn come_back(
        &mut self,
        graph: &mut Graph,
        request: &Request<'_>,
        calling: &Calling,
        answered: Vec<Option<Operand>>,
    ) {
        let mut walk = self.walk(graph, request);
        for ((_, input), grad) in calling.wanted.iter().zip(answered) {
            if let Some(grad) = grad {
                walk.contribute(input.source, input.spec.layout.clone(), grad);
            }
        }
    }
}
