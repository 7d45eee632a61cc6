//! Clipping by global norm, and by value.

use super::{common_engine, gather_grads, take_grad};
use crate::Result;
use crate::engine::Engine;
use crate::engine::state::State;
use crate::error::usage_error;
use crate::pending::context::site;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use highwater_graph::Location;
use highwater_graph::{Operand, Phase, Site};
use highwater_ops::{Clamp, ClipCoefficient, Finite, GradNorm, Mul};
use std::collections::BTreeSet;
use std::sync::Arc;

const NO_GRADIENT: &str = "no parameter has a gradient: call backward() on the loss before, and step() or zero_grad() after";

/// The global 2-norm of the gradients, as `torch.nn.utils.get_total_norm`: the norm of each tensor's
/// norm, so that no two gradients need to be there at once. A tensor that reads as a scalar.
///
/// # Errors
/// [`crate::Error::Usage`] if no parameter has a gradient; [`crate::Error::OtherEngine`] if they are of
/// several engines.
#[track_caller]
pub fn grad_norm(parameters: &[Parameter]) -> Result<Tensor> {
    let location = Location::caller();
    let nothing = || usage_error(format!("grad_norm: {NO_GRADIENT}"), location);
    let engine = common_engine("grad_norm", parameters, location)?.ok_or_else(nothing)?;
    let mut state = engine.lock();
    let state = &mut *state;
    let ids: BTreeSet<_> = parameters.iter().map(Parameter::id).collect();
    let grads: Vec<Operand> = ids
        .into_iter()
        .filter_map(|id| take_grad(&engine, state, id, true))
        .collect();
    if grads.is_empty() {
        return Err(nothing());
    }
    let norm = norm_of_norms(&engine, state, &grads, &site(location, Phase::Update))?;
    Ok(Tensor::pending(&engine, state, norm, location))
}

fn norm_of_norms(
    engine: &Engine,
    state: &mut State,
    grads: &[Operand],
    site: &Site,
) -> Result<Operand> {
    let mut norms = Vec::with_capacity(grads.len());
    for grad in grads {
        let grad = std::slice::from_ref(grad);
        norms.push(engine.apply(state, Arc::new(GradNorm), grad, site)?[0].clone());
    }
    Ok(engine.apply(state, Arc::new(GradNorm), &norms, site)?[0].clone())
}

/// Scales the gradients so that their global 2-norm is at most `max_norm`, as
/// `torch.nn.utils.clip_grad_norm_`; answers the norm before, a tensor that reads as a scalar. No
/// parameter is updated in this step if the norm is not finite. All gradients must be there before
/// the first update: that costs memory, which `plan` shows.
///
/// # Errors
/// [`crate::Error::Usage`] if no parameter has a gradient or `max_norm` is not above 0 (an infinite one clips
/// nothing), [`crate::Error::OtherEngine`] if they are of several engines; gradients are as they were then.
#[track_caller]
pub fn clip_grad_norm_(parameters: &[Parameter], max_norm: f64) -> Result<Tensor> {
    let location = Location::caller();
    // PyTorch scales by whatever it is given: a negative norm turns every gradient around.
    if max_norm.is_nan() || max_norm as f32 <= 0.0 {
        let message = format!("clip_grad_norm_: the norm must be a number above 0, not {max_norm}");
        return Err(usage_error(message, location));
    }
    let Some(engine) = common_engine("clip_grad_norm_", parameters, location)? else {
        return Err(usage_error("clip_grad_norm_ of no parameters", location));
    };
    let mut state = engine.lock();
    let state = &mut *state;
    // No write may come before the norm's guard.
    gather_grads(&engine, state, parameters, location)?;
    let (mut seen, mut ids, mut grads) = (BTreeSet::new(), Vec::new(), Vec::new());
    for parameter in parameters {
        if seen.insert(parameter.id())
            && let Some(grad) = take_grad(&engine, state, parameter.id(), false)
        {
            ids.push(parameter.id());
            grads.push(grad);
        }
    }
    if grads.is_empty() {
        return Err(usage_error(
            format!("clip_grad_norm_: {NO_GRADIENT}"),
            location,
        ));
    }
    let site = site(location, Phase::Update);
    let norm = norm_of_norms(&engine, state, &grads, &site)?;
    let guard = Finite::or_stop("the gradient norm");
    engine.apply(state, Arc::new(guard), std::slice::from_ref(&norm), &site)?;
    let clip = Arc::new(ClipCoefficient { max_norm });
    let coefficient = engine.apply(state, clip, std::slice::from_ref(&norm), &site)?[0].clone();
    for (id, grad) in ids.into_iter().zip(grads) {
        let dtype = grad.spec.dtype;
        let factor = engine.in_dtype(state, coefficient.clone(), dtype, &site)?;
        let clipped = engine.apply(state, Arc::new(Mul), &[grad, factor], &site)?;
        state.pending.grads.insert(id, clipped[0].clone());
    }
    Ok(Tensor::pending(&engine, state, norm, location))
}

/// Holds every element of the gradients between `-clip_value` and `clip_value`, as
/// `torch.nn.utils.clip_grad_value_`. Each gradient by itself: none has to wait for the others. What is not a
/// number stays so.
///
/// # Errors
/// [`crate::Error::Usage`] for a value below 0 or none, [`crate::Error::OtherEngine`] if the parameters are of
/// several engines; gradients are as they were then.
#[track_caller]
pub fn clip_grad_value_(parameters: &[Parameter], clip_value: f64) -> Result<()> {
    let location = Location::caller();
    if clip_value.is_nan() || clip_value < 0.0 {
        let message =
            format!("clip_grad_value_: the value must be a number from 0 up, not {clip_value}");
        return Err(usage_error(message, location));
    }
    let Some(engine) = common_engine("clip_grad_value_", parameters, location)? else {
        return Ok(());
    };
    let mut state = engine.lock();
    let state = &mut *state;
    gather_grads(&engine, state, parameters, location)?;
    let site = site(location, Phase::Update);
    let ids: BTreeSet<_> = parameters.iter().map(Parameter::id).collect();
    for id in ids {
        let Some(grad) = take_grad(&engine, state, id, false) else {
            continue;
        };
        let clamp = Clamp {
            min: Some(-clip_value),
            max: Some(clip_value),
        };
        let clipped = engine.apply(state, Arc::new(clamp), &[grad], &site)?;
        state.pending.grads.insert(id, clipped[0].clone());
    }
    Ok(())
}
