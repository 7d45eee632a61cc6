//! Schedules of learning rates, with the names and numbers of `torch.optim.lr_scheduler`.
//!
//! A [`Schedule`] is a function of a group's own rate and of the epoch (or step: whatever is counted), and
//! holds nothing. An [`LrScheduler`] counts, and sets the rates of an optimizer's groups. So what is saved of
//! one is a number and the groups' own rates.
//!
//! ```
//! use highwater::optim::lr_scheduler::{CosineAnnealingLr, LinearLr, LrScheduler, Schedule, SequentialLr};
//! use highwater::optim::{Optimizer, Sgd, SgdOptions};
//! use highwater::{nn::Linear, prelude::*};
//!
//! # fn main() -> Result<()> {
//! let engine = Engine::builder().memory(128 << 20).build()?;
//! let layer = Linear::new(&engine, 2, 1, true)?;
//! let mut optimizer = Sgd::new(layer.parameters(), SgdOptions { lr: 0.1, ..Default::default() })?;
//! // Five steps of warm-up, then half a cosine.
//! let warm_up = LinearLr { start_factor: 0.1, end_factor: 1.0, total_iters: 5 };
//! let cosine = CosineAnnealingLr { t_max: 95, eta_min: 0.0 };
//! let schedule = SequentialLr::new(vec![Box::new(warm_up), Box::new(cosine)], vec![5])?;
//! let mut scheduler = LrScheduler::new(schedule, &mut optimizer)?;
//! assert!((optimizer.lrs()[0] - 0.01).abs() < 1e-9);
//! for _ in 0..5 {
//!     // forward, backward, and optimizer.step()
//!     scheduler.step(&mut optimizer)?;
//! }
//! assert!((optimizer.lrs()[0] - 0.1).abs() < 1e-9);
//! # Ok(())
//! # }
//! ```

mod plateau;
mod schedules;

pub use plateau::{Mode, ReduceLrOnPlateau, ReduceLrOnPlateauOptions, ThresholdMode};
pub use schedules::{
    Anneal, ConstantLr, CosineAnnealingLr, CosineAnnealingWarmRestarts, ExponentialLr, LambdaLr,
    LinearLr, MultiStepLr, OneCycleLr, PolynomialLr, SequentialLr, StepLr,
};

use super::Optimizer;
use crate::Result;
use crate::error::usage_error;
use highwater_graph::Location;

/// The learning rate of each epoch, or of each step.
pub trait Schedule: std::fmt::Debug + Send {
    /// The rate at an epoch, counted from 0, of a group whose own rate is `base`.
    fn lr(&self, base: f64, epoch: u64) -> f64;

    /// The momentum at an epoch, if the schedule sets that as well.
    fn momentum(&self, _epoch: u64) -> Option<f64> {
        None
    }

    /// What is wrong with its settings.
    fn conflict(&self) -> Option<String> {
        None
    }
}

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn lr(&self, base: f64, epoch: u64) -> f64 {
        (**self).lr(base, epoch)
    }

    fn momentum(&self, epoch: u64) -> Option<f64> {
        (**self).momentum(epoch)
    }

    fn conflict(&self) -> Option<String> {
        (**self).conflict()
    }
}

/// Sets the rates of an optimizer's groups by a schedule, as `torch.optim.lr_scheduler.LRScheduler`.
#[derive(Debug, Clone, PartialEq)]
pub struct LrScheduler<S> {
    schedule: S,
    base_lrs: Vec<f64>,
    last_epoch: u64,
}

impl<S: Schedule> LrScheduler<S> {
    /// Takes the rates that the optimizer's groups have as their own, and sets those of epoch 0.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] for settings that cannot be meant, or a rate below 0.
    #[track_caller]
    pub fn new(schedule: S, optimizer: &mut dyn Optimizer) -> Result<Self> {
        if let Some(message) = schedule.conflict() {
            return Err(usage_error(message, Location::caller()));
        }
        let scheduler = Self {
            schedule,
            base_lrs: optimizer.lrs(),
            last_epoch: 0,
        };
        scheduler.set(optimizer)?;
        Ok(scheduler)
    }

    /// Goes on to the next epoch and sets its rates: after the optimizer's step, or after all of an epoch.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] where the schedule has a rate that is none, or the optimizer other groups.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        self.last_epoch += 1;
        self.set(optimizer)
    }

    /// Goes to an epoch: loading state.
    ///
    /// # Errors
    /// As [`LrScheduler::step`].
    #[track_caller]
    pub fn set_epoch(&mut self, epoch: u64, optimizer: &mut dyn Optimizer) -> Result<()> {
        self.last_epoch = epoch;
        self.set(optimizer)
    }

    /// The epoch whose rates are set, from 0: with the groups' own rates, all that is to be saved.
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch
    }

    /// The groups' own rates.
    pub fn base_lrs(&self) -> &[f64] {
        &self.base_lrs
    }

    /// Sets the groups' own rates: loading state.
    pub fn set_base_lrs(&mut self, base_lrs: Vec<f64>) {
        self.base_lrs = base_lrs;
    }

    /// The rates of this epoch, as `get_last_lr()`.
    pub fn last_lr(&self) -> Vec<f64> {
        let groups = self.base_lrs.iter();
        groups
            .map(|&base| self.schedule.lr(base, self.last_epoch))
            .collect()
    }

    fn set(&self, optimizer: &mut dyn Optimizer) -> Result<()> {
        optimizer.set_lrs(&self.last_lr())?;
        match self.schedule.momentum(self.last_epoch) {
            Some(momentum) => optimizer.set_momentum(momentum),
            None => Ok(()),
        }
    }
}
