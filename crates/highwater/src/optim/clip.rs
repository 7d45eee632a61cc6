//! Clipping by global norm.

use super::take_grad;
use crate::Result;
use crate::context::site;
use crate::engine::usage_error;
use crate::parameter::Parameter;
use crate::tensor::Tensor;
use highwater_graph::Phase;
use highwater_ops::{ClipCoefficient, Finite, GradNorm, Mul};
use std::panic::Location;
use std::sync::Arc;

/// Scales the gradients so that their global 2-norm is at most `max_norm`, as
/// `torch.nn.utils.clip_grad_norm_`; answers the norm before, a tensor that reads as a scalar. No
/// parameter is updated in this step if the norm is not finite. All gradients must be there before
/// the first update: that costs memory, which `plan` shows.
///
/// # Errors
/// [`crate::Error::Usage`] if no parameter has a gradient or `max_norm` is not positive.
#[track_caller]
pub fn clip_grad_norm_(parameters: &[Parameter], max_norm: f64) -> Result<Tensor> {
    let location = Location::caller();
    let Some(engine) = parameters
        .first()
        .map(|parameter| parameter.engine().clone())
    else {
        return Err(usage_error("clip_grad_norm_ of no parameters", location));
    };
    let mut state = engine.lock();
    let state = &mut *state;
    // What is being added to gradients is added first: no write may come before the norm's guard.
    let adding = |parameter: &Parameter| {
        let cell = state.grads.get(&parameter.id());
        let cell = cell.and_then(|&cell| state.graph.cell(cell));
        cell.is_some_and(|cell| cell.evaluated < cell.version)
    };
    if parameters.iter().any(adding) {
        engine.evaluate_effects(state, None, location)?;
    }
    let mut ids = Vec::new();
    let mut grads = Vec::new();
    for parameter in parameters {
        if !ids.contains(&parameter.id())
            && let Some(grad) = take_grad(&engine, state, parameter.id(), false)
        {
            ids.push(parameter.id());
            grads.push(grad);
        }
    }
    if grads.is_empty() {
        return Err(usage_error(
            "clip_grad_norm_: no parameter has a gradient",
            location,
        ));
    }
    let site = site(location, Phase::Update);
    let norm = engine.apply(state, Arc::new(GradNorm), &grads, &site)?[0].clone();
    let guard = Finite {
        what: "the gradient norm",
    };
    engine.apply(state, Arc::new(guard), std::slice::from_ref(&norm), &site)?;
    let clip = Arc::new(ClipCoefficient { max_norm });
    let coefficient = engine.apply(state, clip, std::slice::from_ref(&norm), &site)?[0].clone();
    for (id, grad) in ids.into_iter().zip(grads) {
        let clipped = engine.apply(state, Arc::new(Mul), &[grad, coefficient.clone()], &site)?;
        state.pending_grads.insert(id, clipped[0].clone());
    }
    Ok(Tensor::pending(&engine, state, norm, location))
}
