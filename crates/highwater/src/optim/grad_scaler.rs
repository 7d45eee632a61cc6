//! Loss scaling for half precision.

use super::{Optimizer, Stepped, common_engine, gather_grads, take_grad};
use crate::error::usage_error;
use crate::pending::context::site;
use crate::tensor::Tensor;
use crate::tensor::parameter::Parameter;
use crate::{Error, Result};
use highwater_graph::{CellId, DType, Location, Op, Phase};
use highwater_ops::{Finite, MulScalar};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a guard says of gradients that a scale made too large.
const WHAT: &str = "a scaled gradient";

/// Settings of a [`GradScaler`], with PyTorch's defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradScalerOptions {
    /// The scale at first.
    pub init_scale: f64,
    /// What it is multiplied by after `growth_interval` steps with finite gradients.
    pub growth_factor: f64,
    /// What it is multiplied by after a step whose gradients are not finite.
    pub backoff_factor: f64,
    /// How many steps in a row have to be taken for it to grow.
    pub growth_interval: u64,
    /// Below this [`GradScaler::update`] fails: it is no scale that gradients are too large for.
    pub min_scale: f64,
}

impl Default for GradScalerOptions {
    fn default() -> Self {
        Self {
            init_scale: 65_536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            min_scale: 1e-4,
        }
    }
}

/// Scales losses, so that gradients in `F16` do not vanish, and gradients back, as `torch.amp.GradScaler`.
/// A step whose scaled gradients are not finite is skipped by a guard: nothing of it is read back before,
/// and no parameter, moment or step count changes. The scale falls then, and grows again after a while.
///
/// ```
/// use highwater::optim::{AdamW, AdamWOptions, GradScaler, GradScalerOptions};
/// use highwater::{DType, autocast, nn::Linear, prelude::*};
///
/// # fn main() -> Result<()> {
/// let engine = Engine::builder().memory(128 << 20).build()?;
/// let layer = Linear::new(&engine, 4, 2, true)?;
/// let mut optimizer = AdamW::new(layer.parameters(), AdamWOptions::default())?;
/// let mut scaler = GradScaler::new(GradScalerOptions::default())?;
/// let x = Tensor::randn(&engine, [3, 4])?;
/// let loss = autocast(DType::F16, || layer.forward(&x)?.square()?.mean())?;
/// scaler.scale(&loss)?.backward()?;
/// scaler.step(&mut optimizer)?;
/// scaler.update()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GradScaler {
    options: GradScalerOptions,
    scale: f64,
    /// Steps since the scale changed, or since one was skipped.
    growth_tracker: u64,
    skipped_steps: u64,
    /// Parameters whose gradients are scaled back already.
    unscaled: BTreeSet<CellId>,
    /// Whether a step was taken since the last update, and whether one was skipped.
    stepped: Option<bool>,
}

impl GradScaler {
    /// A scaler.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for settings that cannot be meant.
    #[track_caller]
    pub fn new(options: GradScalerOptions) -> Result<Self> {
        let above = |x: f64, least: f64| x > least && x <= f64::from(f32::MAX);
        let sound = [
            ("init_scale", above(options.init_scale, 0.0), "above 0"),
            (
                "growth_factor",
                above(options.growth_factor, 1.0),
                "above 1",
            ),
            (
                "backoff_factor",
                above(options.backoff_factor, 0.0) && options.backoff_factor < 1.0,
                "between 0 and 1",
            ),
            ("growth_interval", options.growth_interval > 0, "above 0"),
            ("min_scale", above(options.min_scale, 0.0), "above 0"),
        ];
        if let Some((name, _, expected)) = sound.into_iter().find(|(_, sound, _)| !sound) {
            let message = format!("GradScaler: {name} must be a number {expected}: {options:?}");
            return Err(usage_error(message, Location::caller()));
        }
        Ok(Self {
            scale: options.init_scale,
            options,
            growth_tracker: 0,
            skipped_steps: 0,
            unscaled: BTreeSet::new(),
            stepped: None,
        })
    }

    /// The loss times the scale: what to call `backward()` on. That does not stop where the loss is not
    /// finite: [`GradScaler::step`] skips the step then, as in PyTorch.
    ///
    /// # Errors
    /// As [`Tensor::mul_scalar`].
    #[track_caller]
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        let scaled = loss.mul_scalar(self.scale)?;
        scaled.handle.leave_unguarded();
        Ok(scaled)
    }

    /// Scales the gradients of parameters back, before they are clipped or looked at;
    /// [`GradScaler::step`] does it where that was not done. The updates of the next step are left out if
    /// one of them is not finite. All gradients must be there before the first update.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] if that was done since the last [`GradScaler::update`];
    /// [`crate::Error::OtherEngine`] if the parameters are of several engines.
    #[track_caller]
    pub fn unscale_(&mut self, parameters: &[Parameter]) -> Result<()> {
        let location = Location::caller();
        if let Some(twice) = parameters.iter().find(|p| self.unscaled.contains(&p.id())) {
            let message = format!(
                "unscale_: the gradient of `{}` is scaled back already: call update() after step()",
                twice.name()
            );
            return Err(usage_error(message, location));
        }
        let Some(engine) = common_engine("unscale_", parameters, location)? else {
            return Ok(());
        };
        let mut state = engine.lock();
        let state = &mut *state;
        // What is being added to gradients is added first: no write may come before the guard.
        gather_grads(&engine, state, parameters, location)?;
        let mut scaled = Vec::new();
        for parameter in parameters {
            if self.unscaled.insert(parameter.id())
                && let Some(grad) = take_grad(&engine, state, parameter.id(), false)
            {
                scaled.push((parameter.id(), grad));
            }
        }
        scaled.sort_by_key(|(_, grad)| grad.spec.dtype);
        let site = site(location, Phase::Update);
        for of_one_dtype in scaled.chunk_by(|a, b| a.1.spec.dtype == b.1.spec.dtype) {
            let grads: Vec<_> = of_one_dtype.iter().map(|(_, grad)| grad.clone()).collect();
            engine.apply(state, Arc::new(Finite::or_skip(WHAT)), &grads, &site)?;
        }
        let back: Arc<dyn Op> = Arc::new(MulScalar {
            value: 1.0 / self.scale,
        });
        for (id, mut grad) in scaled {
            // What the scale kept from vanishing must not vanish now.
            if grad.spec.dtype == DType::F16 {
                grad = engine.in_dtype(state, grad, DType::F32, &site)?;
            }
            let unscaled = engine.apply(state, Arc::clone(&back), &[grad], &site)?;
            state.pending.grads.insert(id, unscaled[0].clone());
        }
        Ok(())
    }

    /// Scales the gradients of an optimizer's parameters back, unless that was done, and takes its step;
    /// skips it if one of them is not finite.
    ///
    /// # Errors
    /// As [`Optimizer::step`].
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<Stepped> {
        let mut parameters = optimizer.parameters();
        parameters.retain(|parameter| !self.unscaled.contains(&parameter.id()));
        let location = Location::caller();
        location.at(|| self.unscale_(&parameters))?;
        let stepped = location.at(|| optimizer.step())?;
        let skipped = matches!(stepped, Stepped::Skipped { .. });
        self.stepped = Some(self.stepped.unwrap_or(false) || skipped);
        Ok(stepped)
    }

    /// Sets the scale of the next step: lower if a step was skipped since the last update, higher if none
    /// was for a while.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] before a step; [`crate::Error::ScaleFloor`] where the scale would fall below
    /// [`min_scale`](GradScalerOptions::min_scale): gradients are not finite at any scale. Parameters and
    /// moments are those of the last step that was taken, and the scale stays what it was.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        let Some(skipped) = self.stepped.take() else {
            let message = "update: no step was taken with this GradScaler since the last one";
            return Err(usage_error(message, Location::caller()));
        };
        self.unscaled.clear();
        if !skipped {
            self.growth_tracker += 1;
            if self.growth_tracker == self.options.growth_interval {
                self.growth_tracker = 0;
                let grown = self.scale * self.options.growth_factor;
                if grown <= f64::from(f32::MAX) {
                    self.scale = grown;
                }
            }
            return Ok(());
        }
        self.skipped_steps += 1;
        self.growth_tracker = 0;
        let lower = self.scale * self.options.backoff_factor;
        if lower < self.options.min_scale {
            return Err(Error::ScaleFloor {
                scale: self.scale,
                location: Location::caller(),
            });
        }
        self.scale = lower;
        Ok(())
    }

    /// The scale of the next loss: `get_scale`.
    pub fn get_scale(&self) -> f64 {
        self.scale
    }

    /// How many steps were skipped.
    pub fn skipped_steps(&self) -> u64 {
        self.skipped_steps
    }

    /// Scale, steps since it changed, and skipped steps: to be saved.
    pub fn state(&self) -> (f64, u64, u64) {
        (self.scale, self.growth_tracker, self.skipped_steps)
    }

    /// Loads what [`GradScaler::state`] answered.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for a scale that is not above 0 and finite.
    #[track_caller]
    pub fn load_state(&mut self, (scale, growth_tracker, skipped): (f64, u64, u64)) -> Result<()> {
        if !(scale > 0.0 && scale <= f64::from(f32::MAX)) {
            let message = format!("GradScaler: the scale must be above 0 and finite, not {scale}");
            return Err(usage_error(message, Location::caller()));
        }
        (self.scale, self.growth_tracker, self.skipped_steps) = (scale, growth_tracker, skipped);
        Ok(())
    }
}
