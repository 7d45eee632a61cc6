//! Walks that stop where users want to see a gradient: what they do with it is theirs, so that the engine is not
//! locked then.

use super::functions;
use super::lock::Locked;
use crate::autograd::walk::{Course, Gradients, Request, Stop, Turn};
use crate::engine::Engine;
use crate::error::{located, usage_error};
use crate::pending::context::no_grad;
use crate::pending::handle::Handle;
use crate::{Error, Result};
use highwater_graph::{Location, Operand, Source};

/// The engine's error for a stopped backward walk.
fn stopped(stop: Stop) -> Error {
    match stop {
        Stop::Op(error, site) => located(error, &site),
    }
}

/// Emits the nodes that make the gradients asked for, with what hooks have in their places.
pub(super) fn walk<'e>(
    engine: &'e Engine,
    mut state: Locked<'e>,
    request: &Request<'_>,
    location: Location,
) -> Result<(Locked<'e>, Gradients)> {
    let mut course = Course::begin(&mut state.pending.graph, request).map_err(stopped)?;
    let mut seen = None;
    loop {
        let turn = course.advance(&mut state.pending.graph, request, seen.take());
        match turn.map_err(stopped)? {
            Turn::Done(gradients) => return Ok((state, gradients)),
            Turn::Hooked(source, grad) => {
                let after = run(engine, state, request, (source, grad), location)?;
                seen = Some(after.1);
                state = after.0;
            }
            Turn::Calls(calling) => {
                let after = functions::call(engine, state, request, &calling, location)?;
                state = after.0;
                course.come_back(&mut state.pending.graph, request, &calling, after.1);
            }
        }
    }
}

/// Runs a user's code, which may add to the graph, with the engine unlocked, while a walk or a step waits with its
/// numbers. `what` is how messages call it.
pub(crate) fn unlocked<'e, T>(
    engine: &'e Engine,
    mut state: Locked<'e>,
    what: &str,
    location: Location,
    code: impl FnOnce() -> Result<T>,
) -> Result<(Locked<'e>, T)> {
    let before = state.pending.renumbered;
    state.pending.hooks.begin();
    drop(state);
    let returned = code();
    let mut state = engine.lock();
    state.pending.hooks.finish();
    let returned = returned?;
    if state.pending.renumbered != before {
        let message = format!(
            "{what} had something computed: it sees a gradient before there is one, and may make others of it; \
             read them after the step"
        );
        return Err(usage_error(message, location));
    }
    Ok((state, returned))
}

/// Has the hooks of a source see its gradient, one after the other.
fn run<'e>(
    engine: &'e Engine,
    mut state: Locked<'e>,
    request: &Request<'_>,
    (source, mut grad): (Source, Operand),
    location: Location,
) -> Result<(Locked<'e>, Operand)> {
    for hook in state.pending.hooks.of(source) {
        let handle = Handle::pending(&mut state.pending, grad.clone(), location);
        let see = || {
            if request.site.grad_enabled {
                hook(handle)
            } else {
                no_grad(|| hook(handle))
            }
        };
        let (after, replaced) = unlocked(engine, state, "a hook", location, see)?;
        state = after;
        let Some(replaced) = replaced else {
            continue;
        };
        if (replaced.spec.shape(), replaced.spec.dtype) != (grad.shape(), grad.spec.dtype) {
            let (new, old) = (&replaced.spec, &grad.spec);
            let message =
                format!("a hook answered a gradient of {new} in the place of one of {old}");
            return Err(usage_error(message, location));
        }
        grad = state.operand(&replaced)?;
    }
    Ok((state, grad))
}
