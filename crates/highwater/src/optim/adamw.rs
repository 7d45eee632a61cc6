//! AdamW.

use super::{Optimizer, check_settings, step, zero_grad};
use crate::Result;
use crate::context::site;
use crate::parameter::Parameter;
use highwater_graph::{Category, Phase};
use std::panic::Location;
use std::sync::Arc;

/// Settings of a parameter group, with PyTorch's defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamWOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the two moments.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
        }
    }
}

/// Adam with decoupled weight decay (Loshchilov & Hutter 2019), as `torch.optim.AdamW`.
///
/// Each parameter has two moments of its own size, made with the optimizer. Updates are nodes of the
/// step's graph: each runs as soon as its gradient is final, so gradients do not pile up.
#[derive(Debug)]
pub struct AdamW {
    groups: Vec<AdamWOptions>,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    group: usize,
    parameter: Parameter,
    exp_avg: Parameter,
    exp_avg_sq: Parameter,
    /// Updates so far.
    steps: u64,
}

impl AdamW {
    /// An optimizer over one group.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for settings that cannot be meant; [`crate::Error::State`] if there is
    /// no room for the moments.
    #[track_caller]
    pub fn new(parameters: Vec<Parameter>, options: AdamWOptions) -> Result<Self> {
        Self::with_groups(vec![(parameters, options)])
    }

    /// An optimizer over several groups. A parameter that stands twice belongs to the first.
    ///
    /// # Errors
    /// As [`AdamW::new`].
    #[track_caller]
    pub fn with_groups(groups: Vec<(Vec<Parameter>, AdamWOptions)>) -> Result<Self> {
        let mut adamw = Self {
            groups: Vec::new(),
            slots: Vec::<Slot>::new(),
        };
        for (group, (parameters, options)) in groups.into_iter().enumerate() {
            check_settings(&[
                ("lr", options.lr, f64::INFINITY),
                ("beta1", options.betas.0, 1.0),
                ("beta2", options.betas.1, 1.0),
                ("eps", options.eps, f64::INFINITY),
                ("weight_decay", options.weight_decay, f64::INFINITY),
            ])?;
            adamw.groups.push(options);
            for parameter in parameters {
                if adamw.slots.iter().any(|slot| slot.parameter.is(&parameter)) {
                    continue;
                }
                let moment = |kind: &str| {
                    let name = format!("{kind}.{}", parameter.name());
                    let (engine, shape) = (parameter.engine(), parameter.shape().clone());
                    let category = Category::OptimizerState;
                    Parameter::cell(engine, &name, shape, category, false, None)
                };
                let (exp_avg, exp_avg_sq) = (moment("exp_avg")?, moment("exp_avg_sq")?);
                adamw.slots.push(Slot {
                    group,
                    parameter,
                    exp_avg,
                    exp_avg_sq,
                    steps: 0,
                });
            }
        }
        Ok(adamw)
    }

    /// The groups' settings, to be changed between steps.
    pub fn groups_mut(&mut self) -> &mut [AdamWOptions] {
        &mut self.groups
    }

    fn update(&mut self, keep: bool, location: &'static Location<'static>) -> Result<()> {
        let parameters = self.parameters();
        let updated = step(&parameters, keep, location, &mut |state, index, grad| {
            let slot = &self.slots[index];
            let options = &self.groups[slot.group];
            let op = highwater_ops::AdamW {
                lr: options.lr,
                beta1: options.betas.0,
                beta2: options.betas.1,
                eps: options.eps,
                weight_decay: options.weight_decay,
                step: slot.steps + 1,
            };
            let cells = [
                slot.parameter.operand(state)?,
                slot.exp_avg.operand(state)?,
                slot.exp_avg_sq.operand(state)?,
                grad,
            ];
            let site = site(location, Phase::Update);
            slot.parameter
                .engine()
                .apply(state, Arc::new(op), &cells, &site)?;
            Ok(())
        })?;
        for (slot, updated) in self.slots.iter_mut().zip(updated) {
            slot.steps += u64::from(updated);
        }
        Ok(())
    }
}

impl Optimizer for AdamW {
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        self.update(false, Location::caller())
    }

    #[track_caller]
    fn step_keep_grads(&mut self) -> Result<()> {
        self.update(true, Location::caller())
    }

    fn zero_grad(&mut self) {
        zero_grad(&self.parameters());
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.slots
            .iter()
            .map(|slot| slot.parameter.clone())
            .collect()
    }

    fn set_lr(&mut self, lr: f64) {
        self.groups.iter_mut().for_each(|group| group.lr = lr);
    }

    fn state_dict(&self) -> Vec<(String, Parameter)> {
        let named = |slot: &Slot| {
            let name = slot.parameter.name();
            [
                (format!("exp_avg.{name}"), slot.exp_avg.clone()),
                (format!("exp_avg_sq.{name}"), slot.exp_avg_sq.clone()),
            ]
        };
        self.slots.iter().flat_map(named).collect()
    }

    fn step_counts(&self) -> Vec<u64> {
        self.slots.iter().map(|slot| slot.steps).collect()
    }

    fn set_step_counts(&mut self, counts: &[u64]) {
        for (slot, &steps) in self.slots.iter_mut().zip(counts) {
            slot.steps = steps;
        }
    }
}
