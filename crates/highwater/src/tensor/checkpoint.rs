//! Checkpoints: the user's word on what is to be recomputed and what is to be kept.

use crate::Result;
use crate::engine::Engine;
use crate::engine::state::State;
use crate::error::usage_error;
use crate::pending::context::in_checkpoint;
use crate::tensor::Tensor;
use highwater_graph::Location;
use highwater_graph::{CheckpointPolicy, NodeId, Phase, Shape};

/// Runs `f` once, now, and has the planner drop what it makes after the forward part and compute it
/// again when backward wants it, as `torch.utils.checkpoint.checkpoint`. What `f` returns is kept or
/// not as the planner sees fit. The code of `f` is never run again: nodes are replayed, random ones
/// with the same numbers.
///
/// # Errors
/// Those of `f`.
pub fn checkpoint<R>(f: impl FnOnce(&Tensor) -> Result<R>, input: &Tensor) -> Result<R> {
    in_checkpoint(new_region(&input.engine), || f(input))
}

/// Runs functions one after the other, in `segments` parts of which each but the last is a
/// [`checkpoint`], as `torch.utils.checkpoint.checkpoint_sequential`. The last part has what is left
/// of the functions, and is not recomputed: backward starts with it. What passes from one part to
/// the next is kept or not as the planner sees fit.
///
/// # Errors
/// [`crate::Error::Usage`] unless there are 1 to as many segments as functions; those of the functions.
#[track_caller]
pub fn checkpoint_sequential<F>(
    functions: impl IntoIterator<Item = F>,
    segments: usize,
    input: &Tensor,
) -> Result<Tensor>
where
    F: FnOnce(&Tensor) -> Result<Tensor>,
{
    let location = Location::caller();
    let functions: Vec<F> = functions.into_iter().collect();
    let count = functions.len();
    if !(1..=count).contains(&segments) {
        let message = format!(
            "checkpoint_sequential: {segments} segments of {count} functions; there must be at least \
             1, and at most as many as functions"
        );
        return Err(usage_error(message, location));
    }
    let (size, mut functions) = (count / segments, functions.into_iter());
    let mut x = input.clone();
    for _ in 1..segments {
        let segment: Vec<F> = functions.by_ref().take(size).collect();
        x = checkpoint(|x| in_turn(segment, x), &x)?;
    }
    in_turn(functions, &x)
}

fn in_turn<F>(functions: impl IntoIterator<Item = F>, input: &Tensor) -> Result<Tensor>
where
    F: FnOnce(&Tensor) -> Result<Tensor>,
{
    let apply = |x: Tensor, f: F| f(&x);
    functions.into_iter().try_fold(input.clone(), apply)
}

/// An operation inside a checkpoint, as a policy function sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointedOp {
    /// The operation's name, such as `linear` or `gelu`.
    pub name: &'static str,
    /// Path of the module, such as `h.3.mlp`; empty outside any.
    pub module: String,
    /// Shapes of what it reads.
    pub inputs: Vec<Shape>,
    /// Shapes of what it makes.
    pub outputs: Vec<Shape>,
}

/// A [`checkpoint`] in which a function decides for each operation what becomes of its results, as
/// PyTorch's selective activation checkpointing
/// (`context_fn=partial(create_selective_checkpoint_contexts, policy_fn)`).
///
/// `policy` is called once for each operation of `f`, in their order, when `f` has returned. A *must*
/// holds in every plan. A *prefer* holds in every plan as long as one that follows all preferences
/// fits the budget; with less memory than that the planner decides by itself. To recompute a result
/// that is used outside `f` in the forward part is never demanded: like all that is outside a
/// checkpoint, it is kept or not as the planner sees fit. A checkpoint inside `f` keeps its own
/// policy. No choice changes a number.
///
/// # Errors
/// Those of `f`; [`crate::Error::Usage`] if `policy` itself evaluates something.
#[track_caller]
pub fn checkpoint_with<R>(
    mut policy: impl FnMut(&CheckpointedOp) -> CheckpointPolicy,
    f: impl FnOnce(&Tensor) -> Result<R>,
    input: &Tensor,
) -> Result<R> {
    let location = Location::caller();
    let engine = &input.engine;
    let region = new_region(engine);
    let result = in_checkpoint(region, || f(input))?;
    let operations = {
        let state = engine.lock();
        let nodes = nodes_of(&state, region);
        let operation = |&id: &NodeId| operation(&state, id);
        nodes.iter().map(operation).collect::<Vec<_>>()
    };
    // Without the lock: the function may look at tensors.
    let policies: Vec<CheckpointPolicy> = operations.iter().map(&mut policy).collect();
    let mut state = engine.lock();
    let nodes = nodes_of(&state, region);
    if nodes.len() != policies.len() {
        let message = "checkpoint_with: the policy function evaluated what it was asked about";
        return Err(usage_error(message, location));
    }
    for (node, policy) in nodes.into_iter().zip(policies) {
        state.pending.graph.set_checkpoint_policy(node, policy);
    }
    Ok(result)
}

fn new_region(engine: &Engine) -> u32 {
    engine.lock().recordings.next_checkpoint()
}

/// The pending nodes of a checkpoint.
fn nodes_of(state: &State, region: u32) -> Vec<NodeId> {
    let nodes = state.pending.graph.numbered();
    let inside = nodes.filter(|(_, node)| {
        let site = &node.site;
        site.phase == Phase::Forward && site.checkpoint.is_some_and(|found| found.region == region)
    });
    inside.map(|(id, _)| id).collect()
}

fn operation(state: &State, id: NodeId) -> CheckpointedOp {
    let node = state.pending.graph.node(id);
    let inputs = node.inputs.iter().map(|input| input.shape().clone());
    let output = |&id| state.pending.graph.value(id).spec.shape().clone();
    CheckpointedOp {
        name: node.op.name(),
        module: node.site.module.to_string(),
        inputs: inputs.collect(),
        outputs: node.outputs.iter().map(output).collect(),
    }
}
