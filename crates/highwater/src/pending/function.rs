//! Functions whose gradient is a user's: what of them is in the graph. For each output there is a node
//! ([`Through`]) through which gradients leave the graph for the user's closure, and come back at the inputs.
//! The closure is called by the walk that a user has asked for, never by one that only looks ahead.

use super::Pending;
use super::handle::Handle;
use crate::Result;
use highwater_graph::{Cost, DType, Graph, NodeId, Op, OpError, Operand, Spec, ValueId};
use highwater_ops::{Args, DTypes, Element, Kernel, KernelError, Kernels, Pairs, Piece};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeSet;
use std::fmt;
use std::hash::Hasher;
use std::marker::PhantomData;
use std::sync::Arc;

/// What a user's backward is given.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) inputs: Vec<Arc<Handle>>,
    pub(crate) outputs: Vec<Arc<Handle>>,
    /// Of each output; none where no loss depends on it.
    pub(crate) grads: Vec<Option<Arc<Handle>>>,
    /// Which inputs want a gradient.
    pub(crate) needs: Vec<bool>,
}

/// Answers the gradient of each input.
pub(crate) type Call = dyn Fn(Called) -> Result<Vec<Option<Arc<Handle>>>> + Send + Sync;

/// One call of a function.
pub(crate) struct Function {
    /// Held by the graph: [`Handle::of_graph`].
    pub(crate) inputs: Vec<Arc<Handle>>,
    /// As the user's forward made them, without history.
    pub(crate) outputs: Vec<Arc<Handle>>,
    pub(crate) call: Box<Call>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("inputs", &self.inputs.len())
            .field("outputs", &self.outputs.len())
            .finish_non_exhaustive()
    }
}

impl Function {
    /// What the graph calls the inputs from which a gradient can go on.
    pub(crate) fn differentiable(&self) -> impl Iterator<Item = (usize, Operand)> {
        let inputs = self.inputs.iter().enumerate();
        let inputs = inputs.filter_map(|(i, input)| Some((i, input.in_graph()?)));
        inputs.filter(|(_, input)| input.requires_grad)
    }
}

/// Where an output of a function goes into the graph: the same elements, whose gradient is the function's to pass on.
/// Those of one call come one after the other.
#[derive(Debug)]
pub(crate) struct Through {
    pub(crate) function: Arc<Function>,
    /// Which of its outputs.
    pub(crate) output: usize,
}

impl Through {
    pub(crate) const NAME: &'static str = "custom_gradient";

    /// A node as one of these.
    pub(crate) fn of(graph: &Graph, id: NodeId) -> Option<&Self> {
        graph.node(id).op.downcast()
    }
}

/// The results of the call that a node belongs to, up to the node's, the last first; none of any other node.
pub(crate) fn results(graph: &Graph, last: NodeId) -> Option<SmallVec<[ValueId; 2]>> {
    let function = &Through::of(graph, last)?.function;
    let before = (0..=last.index()).rev().map(NodeId::new);
    let same = before.take_while(|&id| {
        Through::of(graph, id).is_some_and(|other| Arc::ptr_eq(&other.function, function))
    });
    Some(same.map(|id| graph.node(id).outputs[0]).collect())
}

impl Pending {
    /// Adds to the nodes that are `kept` those that make what functions among them have saved. Answers that.
    pub(super) fn keep_saved(
        &self,
        kept: &mut [bool],
        ends: impl Fn(ValueId) -> bool,
    ) -> BTreeSet<ValueId> {
        let mut saved = BTreeSet::new();
        for id in (0..kept.len()).rev().map(NodeId::new) {
            let Some(through) = Through::of(&self.graph, id).filter(|_| kept[id.index()]) else {
                continue;
            };
            let Function {
                inputs, outputs, ..
            } = &*through.function;
            let all = inputs.iter().chain(outputs);
            for value in all.filter_map(|handle| handle.pending_value(self.generation)) {
                let producer = self.graph.value(value).producer;
                let is_kept = producer.is_none_or(|(node, _)| kept[node.index()]);
                if saved.insert(value) && !is_kept && !ends(value) {
                    let more = self
                        .graph
                        .reachable(&BTreeSet::from([value]), |_| false, &ends);
                    kept.iter_mut()
                        .zip(more)
                        .for_each(|(kept, more)| *kept |= more);
                }
            }
        }
        saved
    }
}

impl Op for Through {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        OpError::check_arity(Self::NAME, inputs, 1)?;
        let Spec { dtype, layout } = &inputs[0];
        Ok(smallvec![Spec::contiguous(*dtype, layout.shape().clone())])
    }

    fn cost(&self, inputs: &[Spec], outputs: &[Spec], _threads: usize) -> Cost {
        Cost::elementwise(inputs, outputs, 0.0)
    }
}

/// Copies a dense tensor, or finds it where it is to be.
struct Copies<T>(PhantomData<T>);

/// Elements that one task copies.
const TASK: usize = 1 << 15;

impl<T: Element> Kernel for Copies<T> {
    fn in_place(&self, _op: &dyn Op, _inputs: &[Spec], _outputs: &[Spec]) -> Pairs {
        smallvec![(0, 0)]
    }

    fn piece(&self, _op: &dyn Op) -> Option<Piece> {
        Some(|_, inputs, output, _| output.copy_from_slice(inputs[0]))
    }

    fn launch(&self, _op: &dyn Op, args: &mut Args<'_>) -> Result<(), KernelError> {
        let input = &args.inputs[0];
        if input.is_overwritten() {
            return Ok(());
        }
        let (input, output) = (input.slice::<T>()?, args.outputs[0].slice_mut::<T>()?);
        args.pool.for_each_chunk(output, TASK, |i, output| {
            output.copy_from_slice(&input[i * TASK..][..output.len()]);
        });
        Ok(())
    }
}

/// Adds the kernels of these nodes.
pub(crate) fn register(kernels: &mut Kernels) {
    fn of<T: Element>(kernels: &mut Kernels, dtypes: DTypes) {
        let device = highwater_ops::Device::Cpu;
        kernels.register(Through::NAME, device, dtypes, Copies::<T>(PhantomData));
    }
    of::<f32>(kernels, DTypes::F32);
    of::<f64>(kernels, DTypes::new(&[DType::F64], &[DType::F64]));
    of::<half::bf16>(kernels, DTypes::new(&[DType::BF16], &[DType::BF16]));
    of::<half::f16>(kernels, DTypes::new(&[DType::F16], &[DType::F16]));
}

#[cfg(test)]
mod tests {
    use crate::prelude::*;
    use crate::{FunctionContext, custom_gradient};

    fn deep(x: &Tensor, w: &Parameter) -> Result<Tensor> {
        let mut y = x.clone();
        for _ in 0..8 {
            let backward = |of: &FunctionContext| {
                let slope = (1.0 - of.outputs()[0].square()?)?;
                Ok(vec![of.grad(0).map(|grad| grad.mul(&slope)).transpose()?])
            };
            let forward = |x: &[Tensor]| Ok(vec![x[0].tanh()?]);
            y = custom_gradient(&[&y.mul(w)?], forward, backward)?.remove(0);
        }
        y.square()?.mean()
    }

    /// Functions hold what they have saved, but no graph that nobody can want any more.
    #[test]
    fn graphs_do_not_pile_up() -> Result<()> {
        let engine = Engine::builder().seed(3).arena(4 << 20).build()?;
        let w = Parameter::new(&engine, [8], |w| w.fill(0.9))?;
        let x = Tensor::randn(&engine, [4, 8])?;
        let nodes = || engine.lock().pending.graph.nodes().len();
        let mut counts = Vec::new();
        for _ in 0..6 {
            deep(&x, &w)?.item()?;
            counts.push(nodes());
        }
        assert_eq!(counts, [0; 6]);
        for _ in 0..6 {
            let loss = deep(&x, &w)?;
            counts.push(nodes());
            loss.backward()?;
        }
        assert!(
            counts[9..].iter().all(|&count| count == counts[8]),
            "{counts:?}"
        );
        assert!(w.grad().is_some());
        Ok(())
    }
}
