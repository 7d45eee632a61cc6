//! Calls of functions whose backward is a user's closure.

use super::hooks::unlocked;
use super::lock::Locked;
use crate::Result;
use crate::autograd::function::Calling;
use crate::autograd::walk::Request;
use crate::engine::Engine;
use crate::error::usage_error;
use crate::pending::context::{in_phase, no_grad};
use crate::pending::function::{Called, Through};
use crate::pending::handle::Handle;
use highwater_graph::{Location, Operand};
use std::sync::Arc;

/// Calls the closure with the engine unlocked. Answers the gradients of the inputs that want one.
pub(super) fn call<'e>(
    engine: &'e Engine,
    mut locked: Locked<'e>,
    request: &Request<'_>,
    calling: &Calling,
    location: Location,
) -> Result<(Locked<'e>, Vec<Option<Operand>>)> {
    let (function, state) = (&calling.function, &mut *locked);
    let mut outputs = Vec::with_capacity(function.outputs.len());
    for (output, (made, there)) in function.outputs.iter().zip(&calling.outputs).enumerate() {
        let mut operand = state.operand(made)?;
        if let Some(there) = there {
            operand.clone_from(there);
        } else if request.site.grad_enabled && operand.spec.dtype.is_float() {
            // Nobody else holds it any more, but what the closure makes of it has gradients in turn.
            operand.requires_grad = true;
            let function = Arc::clone(function);
            let through = Arc::new(Through { function, output });
            operand = engine
                .apply(state, through, &[operand], &request.site)?
                .remove(0);
        }
        outputs.push(operand);
    }
    let inputs = function.inputs.iter();
    let inputs: Result<Vec<Operand>> = inputs.map(|input| state.operand(input)).collect();
    let mut handle = |operand| Handle::pending(&mut state.pending, operand, location);
    let mut needs = vec![false; function.inputs.len()];
    calling.wanted.iter().for_each(|(i, _)| needs[*i] = true);
    let called = Called {
        inputs: inputs?.into_iter().map(&mut handle).collect(),
        outputs: outputs.into_iter().map(&mut handle).collect(),
        grads: (calling.grads.iter().cloned())
            .map(|grad| grad.map(&mut handle))
            .collect(),
        needs,
    };
    let run = || {
        in_phase(request.site.phase, || {
            if request.site.grad_enabled {
                (function.call)(called)
            } else {
                no_grad(|| (function.call)(called))
            }
        })
    };
    let what = "the backward of custom_gradient()";
    let (mut locked, answered) = unlocked(engine, locked, what, location, run)?;
    let (got, wanted) = (answered.len(), function.inputs.len());
    if got != wanted {
        let message = format!(
            "{what} returned {got} gradients for {wanted} inputs: return one for each, and None where there is none"
        );
        return Err(usage_error(message, location));
    }
    let mut grads = Vec::with_capacity(calling.wanted.len());
    for (i, input) in &calling.wanted {
        let Some(grad) = &answered[*i] else {
            grads.push(None);
            continue;
        };
        if (grad.spec.shape(), grad.spec.dtype) != (input.shape(), input.spec.dtype) {
            let message = format!(
                "{what} returned a gradient of {} for input {i} of {}",
                grad.spec, input.spec
            );
            return Err(usage_error(message, location));
        }
        grads.push(Some(locked.operand(grad)?));
    }
    Ok((locked, grads))
}
