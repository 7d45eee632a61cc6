//! `backward()`: from a loss to gradients on parameters and leaves.

use crate::autograd::walk;
use crate::engine::state::State;
use crate::engine::{Engine, hooks};
use crate::error::usage_error;
use crate::pending::context::site;
use crate::pending::handle::Handle;
use crate::{Error, Result};
use highwater_graph::{CellId, Location, Operand, Phase, Site, Source, ValueId};
use highwater_ops::{Accumulate, Finite};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// With `gradient`, that of the result instead of one.
pub(crate) fn backward(
    engine: &Engine,
    loss: &Arc<Handle>,
    gradient: Option<&Arc<Handle>>,
    location: Location,
) -> Result<()> {
    let mut locked = engine.once_unlent(engine.lock(), None, location)?;
    let state = &mut *locked;
    let mut root = state.operand(loss)?;
    check_root("backward()", &root, gradient, location)?;
    // What the forward part writes waits for the guard, unless the loss comes of it; what is being
    // added to gradients is added first.
    let done = &state.pending.progress.done;
    let adding = state
        .pending
        .graph
        .numbered()
        .any(|(id, node)| node.is_write_of_backward() && !done.contains(&id));
    let awaits = root.value().is_some_and(|id| state.awaits_writes(id));
    if adding || awaits || !state.pending.grads.is_empty() {
        root = engine.evaluate_grads(state, &root, location)?;
    }
    let seed = gradient
        .map(|gradient| state.operand(gradient))
        .transpose()?;
    let request = walk::Request {
        roots: &[(root.clone(), seed)],
        wanted: None,
        site: walk::backward_site(location),
        hooked: state.pending.hooks.hooked(),
        calls: true,
    };
    let (mut locked, gradients) = hooks::walk(engine, locked, &request, location)?;
    let state = &mut *locked;
    if let Err(error) = check_leaves(state, &gradients, location) {
        state.compact(None);
        return Err(error);
    }
    if loss.is_guarded() {
        let guard = Arc::new(Finite::or_stop("the loss"));
        let guarded = std::slice::from_ref(&root);
        engine.apply(state, guard, guarded, &site(location, Phase::Backward))?;
    }
    let reached = gradients.iter().filter_map(|(source, _)| match source {
        Source::Cell(id, _) => state.memory.grads.get(id).copied(),
        Source::Value(_) => None,
    });
    let added_to: BTreeSet<CellId> = reached.collect();
    if !added_to.is_empty() {
        engine.keep_read_cells(state, |id| added_to.contains(&id), location)?;
    }
    for (source, grad) in gradients {
        match source {
            Source::Cell(id, _) => accumulate(engine, state, id, grad, location)?,
            Source::Value(id) => leaf(engine, state, id, grad, location)?,
        }
    }
    if engine.0.eager {
        engine.evaluate_grads(state, &root, location)?;
    }
    Ok(())
}

/// That gradients flow back from a result, and that it is one number or its gradient is given.
fn check_root(
    what: &str,
    root: &Operand,
    gradient: Option<&Arc<Handle>>,
    location: Location,
) -> Result<()> {
    if !root.requires_grad {
        let message = format!(
            "{what} of a tensor that nothing with requires_grad went into: make it from a Parameter, or call \
             requires_grad_() on an input before its first use, and not under no_grad()"
        );
        return Err(usage_error(message, location));
    }
    let message = match gradient {
        None if root.shape().numel() != 1 => format!(
            "{what}: expected one element, got the shape {}: reduce it with mean() or sum() first, or give \
             its gradient",
            root.shape()
        ),
        Some(gradient) if gradient.spec.shape() != root.shape() => format!(
            "{what}: a gradient of shape {} for a result of shape {}",
            gradient.spec.shape(),
            root.shape()
        ),
        Some(gradient) if gradient.spec.dtype != root.spec.dtype => format!(
            "{what}: a gradient of {} for a result of {}: cast it with to_dtype()",
            gradient.spec.dtype, root.spec.dtype
        ),
        _ => return Ok(()),
    };
    Err(usage_error(message, location))
}

/// The gradients of `inputs`, as nodes like those that the user makes: see [`crate::grad`].
pub(crate) fn grad(
    engine: &Engine,
    outputs: &[(&Arc<Handle>, Option<&Arc<Handle>>)],
    inputs: &[&Arc<Handle>],
    create_graph: bool,
    location: Location,
) -> Result<Vec<Option<Arc<Handle>>>> {
    let mut locked = engine.lock();
    let state = &mut *locked;
    let mut roots = Vec::with_capacity(outputs.len());
    for (output, gradient) in outputs {
        let root = state.operand(output)?;
        check_root("grad()", &root, *gradient, location)?;
        let seed = gradient
            .map(|gradient| state.operand(gradient))
            .transpose()?;
        roots.push((root, seed));
    }
    let mut sources = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate() {
        let operand = state.operand(input)?;
        check_whole(&format!("grad(): input {i}"), state, &operand, location)?;
        sources.push(operand.source);
    }
    let site = Site {
        phase: Phase::Forward,
        grad_enabled: create_graph,
        ..walk::backward_site(location)
    };
    let wanted = sources.iter().copied().collect();
    let request = walk::Request {
        roots: &roots,
        wanted: Some(&wanted),
        site,
        hooked: state.pending.hooks.hooked(),
        calls: true,
    };
    let (mut locked, found) = hooks::walk(engine, locked, &request, location)?;
    let state = &mut *locked;
    let found: BTreeMap<Source, Operand> = found.into_iter().collect();
    let mut handle = |source: &Source| {
        let grad = found.get(source)?.clone();
        Some(Handle::pending(&mut state.pending, grad, location))
    };
    Ok(sources.iter().map(&mut handle).collect())
}

/// That a gradient of a tensor can be told apart from those of others: views are not.
pub(crate) fn check_whole(
    what: &str,
    state: &State,
    input: &Operand,
    location: Location,
) -> Result<()> {
    let graph = &state.pending.graph;
    let whole = match input.source {
        Source::Value(id) => Some(&graph.value(id).spec.layout),
        Source::Cell(id, _) => graph.cell(id).map(|cell| &cell.spec.layout),
    };
    let why = if !input.requires_grad {
        "does not require gradients"
    } else if whole != Some(&input.spec.layout) {
        "is a view: ask for the gradient of what it is a view of, and take the same view of that"
    } else {
        return Ok(());
    };
    Err(usage_error(format!("{what} {why}"), location))
}

/// That no gradient reaches a value whose history was consumed, whoever still holds that value.
fn check_leaves(state: &State, gradients: &walk::Gradients, location: Location) -> Result<()> {
    let reached = gradients.iter().filter_map(|(source, _)| match source {
        Source::Value(id) => state.pending.leaves.get(id),
        Source::Cell(..) => None,
    });
    match reached.into_iter().find(|leaf| leaf.consumed) {
        Some(leaf) => Err(Error::HistoryConsumed {
            spec: leaf.spec.to_string(),
            made_at: leaf.made_at,
            location,
        }),
        None => Ok(()),
    }
}

/// Adds to a parameter's gradient.
fn accumulate(
    engine: &Engine,
    state: &mut State,
    id: CellId,
    grad: Operand,
    location: Location,
) -> Result<()> {
    // Frozen since the forward pass, as in PyTorch.
    if state
        .pending
        .graph
        .cell(id)
        .is_some_and(|cell| !cell.requires_grad)
    {
        return Ok(());
    }
    // A cell's bytes are its own: an update of it must not be one of what it is updated by.
    let grad = match grad.source {
        Source::Cell(..) => engine.own_copy(state, grad, location)?,
        Source::Value(_) => grad,
    };
    if let Some(cell) = state
        .memory
        .grads
        .get(&id)
        .and_then(|&cell| state.pending.graph.read_cell(cell))
    {
        let site = site(location, Phase::Backward);
        // What was scaled back is wider than what comes.
        let grad = engine.in_dtype(state, grad, cell.spec.dtype, &site)?;
        engine.apply(state, Arc::new(Accumulate), &[cell, grad], &site)?;
        return Ok(());
    }
    state.pending.grads.insert(id, grad);
    Ok(())
}

/// Leaves the gradient on a tensor that the user gave.
fn leaf(
    engine: &Engine,
    state: &mut State,
    id: ValueId,
    grad: Operand,
    location: Location,
) -> Result<()> {
    let leaf = state.pending.leaves.get(&id);
    let Some(handle) = leaf.and_then(|leaf| leaf.handle.upgrade()) else {
        return Ok(());
    };
    let mut sum = grad;
    if let Some(before) = handle.grad() {
        let operands = [state.operand(&before)?, sum];
        let site = site(location, Phase::Backward);
        let add = Arc::new(highwater_ops::Add);
        sum = engine.apply(state, add, &operands, &site)?.remove(0);
    }
    let sum = Handle::pending(&mut state.pending, sum, location);
    sum.keep();
    handle.set_grad(sum);
    Ok(())
}
