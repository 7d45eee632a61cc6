//! Stochastic gradient descent.

use super::{Optimizer, check_settings, step, zero_grad};
use crate::Result;
use crate::context::site;
use crate::parameter::Parameter;
use highwater_graph::{Category, Phase};
use std::panic::Location;
use std::sync::Arc;

/// Settings of SGD, with PyTorch's defaults and names.
#[derive(Debug, Clone, PartialEq)]
pub struct SgdOptions {
    /// Learning rate.
    pub lr: f64,
    /// Momentum; 0 needs no buffer.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
}

impl Default for SgdOptions {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
        }
    }
}

/// Stochastic gradient descent with optional momentum, as `torch.optim.SGD`.
#[derive(Debug)]
pub struct Sgd {
    groups: Vec<SgdOptions>,
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    group: usize,
    parameter: Parameter,
    buffer: Option<Parameter>,
    /// Updates so far.
    steps: u64,
}

impl Sgd {
    /// An optimizer over one group.
    ///
    /// # Errors
    /// [`crate::Error::State`] if there is no room for momentum buffers.
    #[track_caller]
    pub fn new(parameters: Vec<Parameter>, options: SgdOptions) -> Result<Self> {
        Self::with_groups(vec![(parameters, options)])
    }

    /// An optimizer over several groups. A parameter that stands twice belongs to the first.
    ///
    /// # Errors
    /// As [`Sgd::new`].
    #[track_caller]
    pub fn with_groups(groups: Vec<(Vec<Parameter>, SgdOptions)>) -> Result<Self> {
        let mut sgd = Self {
            groups: Vec::new(),
            slots: Vec::<Slot>::new(),
        };
        for (group, (parameters, options)) in groups.into_iter().enumerate() {
            check_settings(&[
                ("lr", options.lr, f64::INFINITY),
                ("momentum", options.momentum, f64::INFINITY),
                ("weight_decay", options.weight_decay, f64::INFINITY),
            ])?;
            for parameter in parameters {
                if sgd.slots.iter().any(|slot| slot.parameter.is(&parameter)) {
                    continue;
                }
                let buffer = (options.momentum != 0.0).then(|| {
                    let name = format!("momentum_buffer.{}", parameter.name());
                    let (engine, shape) = (parameter.engine(), parameter.shape().clone());
                    Parameter::cell(engine, &name, shape, Category::OptimizerState, false, None)
                });
                sgd.slots.push(Slot {
                    group,
                    parameter,
                    buffer: buffer.transpose()?,
                    steps: 0,
                });
            }
            sgd.groups.push(options);
        }
        Ok(sgd)
    }

    /// The groups' settings, to be changed between steps. Whether there is momentum is settled when
    /// the optimizer is made.
    pub fn groups_mut(&mut self) -> &mut [SgdOptions] {
        &mut self.groups
    }

    fn update(&mut self, keep: bool, location: &'static Location<'static>) -> Result<()> {
        let parameters = self.parameters();
        let updated = step(&parameters, keep, location, &mut |state, index, grad| {
            let Slot {
                group,
                parameter,
                buffer,
                steps,
            } = &self.slots[index];
            let options = &self.groups[*group];
            let op = highwater_ops::Sgd {
                lr: options.lr,
                momentum: options.momentum,
                dampening: options.dampening,
                weight_decay: options.weight_decay,
                nesterov: options.nesterov,
                first: *steps == 0,
            };
            let mut inputs = vec![parameter.operand(state)?];
            if let Some(buffer) = buffer {
                inputs.push(buffer.operand(state)?);
            }
            inputs.push(grad);
            let site = site(location, Phase::Update);
            parameter
                .engine()
                .apply(state, Arc::new(op), &inputs, &site)?;
            Ok(())
        })?;
        for (slot, updated) in self.slots.iter_mut().zip(updated) {
            slot.steps += u64::from(updated);
        }
        Ok(())
    }
}

impl Optimizer for Sgd {
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
            let name = format!("momentum_buffer.{}", slot.parameter.name());
            slot.buffer.clone().map(|buffer| (name, buffer))
        };
        self.slots.iter().filter_map(named).collect()
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
